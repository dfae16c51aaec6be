"""A gateway in front of a real model server, for the tests that need one.

``EDGE_LIVE_URL`` names the server (``http://127.0.0.1:18080/v1``), ``EDGE_LIVE_MODEL`` one of its
models (the first it lists, where unset). Without the first every test here is skipped. README.md
says how to start llama.cpp for it.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from openai import OpenAI

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Live:
    """The gateway under test and the server behind it."""

    base_url: str
    port: int
    server_url: str
    model: str

    @property
    def client(self) -> OpenAI:
        """The official client; it never retries, so that nothing is hidden."""
        return OpenAI(base_url=self.base_url, api_key="unused", max_retries=0, timeout=300)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
        except OSError:
            continue
        return
    pytest.fail(f"the gateway does not listen: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """``edge serve --upstream`` as a process of its own, on a free port."""
    server_url = os.environ.get("EDGE_LIVE_URL", "").rstrip("/")
    if not server_url:
        pytest.skip("EDGE_LIVE_URL names no model server")
    with OpenAI(base_url=server_url, api_key="unused") as direct:
        model = os.environ.get("EDGE_LIVE_MODEL") or next(iter(direct.models.list())).id
    port = _free_port()
    log = tmp_path_factory.mktemp("gateway") / "log"
    command = [sys.executable, "-m", "edge", "serve", "--upstream", server_url]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--bind", f"127.0.0.1:{port}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_it_listens(process, port, log)
        yield Live(f"http://127.0.0.1:{port}/v1", port, server_url, model)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
