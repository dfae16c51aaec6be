"""What edge takes from hypercorn, Quart and wsproto is still what was read when it was taken.

Docs/design/003 says which defects of the stock worker edge goes around, and it does so at exact
places: methods that it overrides, calls, or feeds by hand. Those are pinned here by the hash of
their source. A new release that changes one of them fails here, in a sentence that says what to
look at; where nothing has to change, the new hash goes beside the old ones.
"""

import hashlib
import importlib
import inspect
import tomllib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Piece:
    """A piece of somebody else's code.

    Attributes:
        distribution: what brings it.
        place: ``module:name``.
        why: what edge does with it.
        where: the files to look at when it changes.
        hashes: of the sources that were read, by release.
    """

    distribution: str
    place: str
    why: str
    where: tuple[str, ...]
    hashes: dict[str, str]

    @property
    def source(self) -> str:
        """As it is installed."""
        module, _, name = self.place.partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return inspect.getsource(found)


UPGRADE = "edge/server/websocket_upgrade.py"
STREAM = "edge/server/socket_stream.py"
SOCKET = "edge/server/client_socket.py"
CONNECTION = "edge/server/connection.py"
LISTENER = "edge/server/listener.py"

PIECES = [
    Piece(
        "hypercorn",
        "hypercorn.protocol.h11:H11Protocol",
        "overrides _create_stream, feeds it bytes, and takes its Closed for our end.",
        (STREAM, UPGRADE),
        {"0.18.0": "b32a61e0a8ca2127"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.protocol.h11:H11WSConnection",
        "lets it take the bytes over behind the handshake.",
        (STREAM,),
        {"0.18.0": "33372cf689429978"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.protocol.ws_stream:WSStream",
        "overrides handle and _handle_events, and has it shake hands and close.",
        (
            UPGRADE,
            SOCKET,
        ),
        {"0.18.0": "67434c428a1a3c04"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.protocol.ws_stream:Handshake",
        "lets it judge the handshake, and keeps compression away from it.",
        (STREAM,),
        {"0.18.0": "701a154c29b5ab4c"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.protocol.ws_stream:WebsocketBuffer",
        "joins the parts of a message in it.",
        (STREAM,),
        {"0.18.0": "31c9b1345f308f4c"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.events:Closed",
        "takes the three events apart by their types.",
        (UPGRADE,),
        {"0.18.0": "fdf0811a40db6ca8"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.events:RawData",
        "takes the three events apart by their types.",
        (UPGRADE,),
        {"0.18.0": "ef90de8e4a2d6245"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.trio.task_group:TaskGroup",
        "runs the view of a WebSocket in it, one for each connection.",
        (UPGRADE,),
        {"0.18.0": "8467a3a16a7e8763"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.trio.worker_context:WorkerContext",
        "makes one for each WebSocket, with no limit of requests.",
        (UPGRADE,),
        {"0.18.0": "45885f0c0bd5bc9d"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.trio.lifespan:Lifespan",
        "starts and stops the app through it.",
        (LISTENER,),
        {"0.18.0": "7c58a46fd0717442"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.utils:wrap_app",
        "has the app wrapped by it for both.",
        (LISTENER,),
        {"0.18.0": "5d4461d441165998"},
    ),
    Piece(
        "hypercorn",
        "hypercorn.app_wrappers:ASGIWrapper",
        "counts on it to hand the scope on as it is.",
        (UPGRADE,),
        {"0.18.0": "8670a23eb46059a3"},
    ),
    Piece(
        "quart",
        "quart.asgi:ASGIHTTPConnection._send_response",
        "sends ordinary answers by it.",
        (CONNECTION,),
        {"0.22.0": "2958216ed9d8d2eb", "0.23.1": "a35910cc5daae65a"},
    ),
    Piece(
        "quart",
        "quart.asgi:ASGIHTTPConnection._create_request_from_scope",
        "finds its own connection in the scope it keeps.",
        (CONNECTION,),
        {"0.22.0": "3476af7fd451af28", "0.23.1": "3476af7fd451af28"},
    ),
    Piece(
        "quart",
        "quart.asgi:ASGIWebsocketConnection",
        "lets it open, refuse and close WebSockets.",
        (
            CONNECTION,
            SOCKET,
        ),
        {"0.22.0": "13f96f7be8574360", "0.23.1": "84abaed6cf48d792"},
    ),
    Piece(
        "quart",
        "quart.wrappers.request:Body",
        "sets a body's bytes or its error from outside, the latter by a private name.",
        (CONNECTION,),
        {"0.22.0": "c93c37f778fda649", "0.23.1": "149cdba75dcd9609"},
    ),
    Piece(
        "quart",
        "quart.wrappers.websocket:Websocket",
        "receives, accepts and closes by it.",
        (SOCKET,),
        {"0.22.0": "51157004de7a19f7", "0.23.1": "0237ca3ddc1ec5b1"},
    ),
    Piece(
        "quart-trio",
        "quart_trio.asgi:TrioASGIHTTPConnection",
        "overrides handle_messages and _send_response, which one nursery calls.",
        (CONNECTION,),
        {"0.12.0": "6393e71c2a5138be", "0.13.0": "3a17dce123a50e94"},
    ),
    Piece(
        "quart-trio",
        "quart_trio.asgi:TrioASGIWebsocketConnection",
        "overrides __call__, and counts on every message passing through receive and send.",
        (CONNECTION,),
        {"0.12.0": "a35afe442a69f510", "0.13.0": "62923f3b4a0ff0c9"},
    ),
    Piece(
        "quart-trio",
        "quart_trio.wrappers:TrioResponse",
        "makes its own kind of response from it, without a deadline.",
        (CONNECTION,),
        {"0.12.0": "b01dd386138bbfda", "0.13.0": "64e1f076647ad2fb"},
    ),
    Piece(
        "wsproto",
        "wsproto.connection:Connection",
        "is told by its events what a client sent and what was wrong with it.",
        (STREAM,),
        {"1.3.2": "6b70917fe888fb2c"},
    ),
    Piece(
        "wsproto",
        "wsproto.frame_protocol:FrameDecoder",
        "counts on it to hand out parts of long frames and to hold back control frames alone.",
        (STREAM,),
        {"1.3.2": "a06eb6159106220a"},
    ),
    Piece(
        "wsproto",
        "wsproto.frame_protocol:FrameProtocol",
        "counts on it to judge close codes and reserved bits.",
        (STREAM,),
        {"1.3.2": "ff40772c901f3baa"},
    ),
]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.place)
def test_a_piece_that_edge_stands_on_has_not_moved(piece: Piece) -> None:
    found = digest(piece.source)

    assert found in piece.hashes.values(), (
        f"{piece.place} of {piece.distribution} {version(piece.distribution)} is not what was "
        f"read. Edge {piece.why} See in {' and '.join(piece.where)} whether that still holds, run "
        f"tests/server and tests/behaviours, then put {found!r} beside the other hashes."
    )


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.place)
def test_the_releases_that_were_read_are_those_of_the_ranges(piece: Piece) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [
        requirement
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == piece.distribution
    ]

    assert [release for release in piece.hashes if release not in wanted.specifier] == []
    assert [path for path in piece.where if not (ROOT / path).is_file()] == []


def test_hypercorn_is_pinned_to_the_line_that_was_read() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert "hypercorn==0.18.*" in project["dependencies"]
