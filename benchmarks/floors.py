"""The servers that a measurement compares: nothing, nginx, bare hypercorn and the gateway's paths.

Each target is started anew on a free port in front of the same fake provider. A path of the
gateway is a route of its configuration, which is written here and kept beside the logs.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Cores, Server, free_port

NGINX = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    keepalive_requests 10000000;
    upstream provider {{
        server 127.0.0.1:{provider};
        keepalive 1024;
        keepalive_requests 10000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""

GATEWAY = """\
[server]
bind = ["127.0.0.1:{port}"]
workers = {workers}

[telemetry]
log = "json"

[limits]
max_runs = 4000
queue = 4000

[[providers]]
name = "decoded"
kind = "openai"
base_url = "http://127.0.0.1:{provider}/v1"
path = "normalized"

[[providers]]
name = "passed"
kind = "openai"
base_url = "http://127.0.0.1:{provider}/v1"
path = "tunnel"

[[routes]]
model = "tunnel"
targets = [{{ provider = "passed", model = "fake" }}]
[routes.output]
validate = "off"
buffer = "off"

[[routes]]
model = "live"
targets = [{{ provider = "decoded", model = "fake" }}]
[routes.output]
buffer = "off"

[[routes]]
model = "calls-held"
targets = [{{ provider = "decoded", model = "fake" }}]
[routes.output]
buffer = "tool_calls"

[[routes]]
model = "validated"
targets = [{{ provider = "decoded", model = "fake" }}]
[routes.output]
buffer = "full"
validate = "enforce"
"""


@dataclass(frozen=True, slots=True)
class Target:
    """One column of the comparison.

    Attributes:
        model: the route asked for.
        tools: whether requests offer a tool.
        call: whether the answer is a tool call.
        held: whether the answer leaves in one piece, after it was judged.
        own_provider: it answers for itself, so nothing can be noticed behind it.
    """

    name: str
    about: str
    model: str = "fake"
    tools: bool = False
    call: bool = False
    held: bool = False
    own_provider: bool = False
    gateway: bool = False


TARGETS = (
    Target("direct", "the load straight at the fake provider"),
    Target("nginx", "a transparent proxy, one worker"),
    Target("hypercorn", "a bare ASGI app on hypercorn's trio worker", own_provider=True),
    Target("tunnel", "edge, bytes passed through", model="tunnel", gateway=True),
    Target("live", "edge, decoded and emitted again (buffer=off)", model="live", gateway=True),
    Target(
        "calls-held",
        "edge, the same with tools offered and text scanned for calls (buffer=tool_calls)",
        model="calls-held",
        tools=True,
        gateway=True,
    ),
    Target(
        "validated",
        "edge, a tool call held, judged and emitted (buffer=full)",
        model="validated",
        tools=True,
        call=True,
        held=True,
        gateway=True,
    ),
)


def nginx_binary() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def unavailable(target: Target) -> str:
    """Why a target cannot run here, or empty."""
    return "nginx is not installed" if target.name == "nginx" and not nginx_binary() else ""


@dataclass(frozen=True, slots=True)
class Running:
    """A started target; ``server`` is None where there is nothing to weigh."""

    target: Target
    port: int
    server: Server | None


@contextmanager
def started(
    target: Target, provider: int, folder: Path, cores: Cores, workers: int
) -> Iterator[Running]:
    """Start a target, wait until it listens, stop it afterwards."""
    if target.name == "direct":
        yield Running(target, provider, None)
        return
    port = free_port()
    command = _command(target, port, provider, folder, workers)
    core = cores.server if workers == 1 else -1
    server = Server(command, folder / f"{target.name}.log", core)
    try:
        server.wait_for_port(port)
        yield Running(target, port, server)
    finally:
        server.stop()


def _command(target: Target, port: int, provider: int, folder: Path, workers: int) -> list[str]:
    if target.name == "nginx":
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port, provider=provider))
        return [nginx_binary() or "nginx", "-c", str(config)]
    if target.name == "hypercorn":
        bind = f"127.0.0.1:{port}"
        options = ["-k", "trio", "-w", "1", "-b", bind, "--keep-alive", "75"]
        return [sys.executable, "-m", "hypercorn", *options, "benchmarks.bare_app:app"]
    config = folder / "edge.toml"
    config.write_text(GATEWAY.format(port=port, provider=provider, workers=workers))
    return [sys.executable, "-m", "edge", "serve", "--config", str(config)]
