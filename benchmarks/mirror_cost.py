"""What followers cost the runs they follow: ``python -m benchmarks.mirror_cost [--seconds 3]``.

One gateway path (``live``: every chunk decoded and emitted again) under the same load with

* ``off``: no replay buffer and nobody who follows, which is the floor of this comparison;
* ``kept``: the replay buffers that runs fill by default, and nobody who follows;
* ``stuck``: beside that one follower of all runs that reads nothing;
* ``reading``: one follower of all runs that reads everything;
* ``crowd``: so many followers that read everything, beside one single stream.

Figures are of one run, in rounds that take turns, the better of two. See ``README.md`` for what the
phases and the columns are.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.chunk_latency import Effort, Measurement, Result
from benchmarks.floors import GATEWAY, TARGETS, Running
from benchmarks.processes import Cores, Server

LIVE = next(target for target in TARGETS if target.name == "live")
CLIENTS = 16


@dataclass(frozen=True, slots=True)
class Mode:
    """Who follows."""

    name: str
    replay_bytes: int = 262144
    followers: int = 0
    stuck: bool = False
    clients: int = CLIENTS


def modes(crowd: int) -> list[Mode]:
    return [
        Mode("off", replay_bytes=0),
        Mode("kept"),
        Mode("stuck", followers=1, stuck=True),
        Mode("reading", followers=1),
        Mode("off, one stream", replay_bytes=0, clients=1),
        Mode(f"crowd of {crowd}", followers=crowd, clients=1),
    ]


@contextmanager
def gateway(mode: Mode, provider: int, folder: Path, cores: Cores) -> Iterator[Running]:
    port = processes.free_port()
    config = folder / "edge.toml"
    mirror = f"\n[mirror]\nreplay_bytes = {mode.replay_bytes}\n"
    config.write_text(GATEWAY.format(port=port, provider=provider, workers=1) + mirror)
    command = [sys.executable, "-m", "edge", "serve", "--config", str(config)]
    server = Server(command, folder / "edge.log", cores.server)
    try:
        server.wait_for_port(port)
        yield Running(LIVE, port, server)
    finally:
        server.stop()


@contextmanager
def followed(mode: Mode, port: int) -> Iterator[dict[str, Any]]:
    """Followers for the length of the block; what they got is there afterwards."""
    got: dict[str, Any] = {}
    if not mode.followers:
        yield got
        return
    command = [sys.executable, "-m", "benchmarks.mirror_followers", "--port", str(port)]
    command += ["--count", str(mode.followers), *(["--stuck"] if mode.stuck else [])]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        if not process.stdout.readline():
            raise RuntimeError("the followers could not connect")
        yield got
        process.stdin.close()
        got |= json.loads(process.stdout.read() or "{}")


def measure(mode: Mode, provider: int, folder: Path, cores: Cores, effort: Effort) -> Result:
    with gateway(mode, provider, folder, cores) as running:
        measurement = Measurement(running, provider, cores, replace(effort, hangups=0))
        measurement.warm_up()
        with followed(mode, running.port) as got:
            result: Result = {"paced": measurement.paced(mode.clients)}
            if mode.clients > 1:
                result["burst"] = measurement.burst(mode.clients)
        return {**result, "got": got}


def better(first: Result | None, second: Result) -> Result:
    """The round in which a paced chunk cost less."""
    if first is None or cost(second, "paced") < cost(first, "paced"):
        return second
    return first


def cost(result: Result, phase: str) -> float:
    """CPU microseconds a chunk."""
    found = result[phase]
    return float(found["cpu_s"]) * 1e6 / max(1, int(found["chunks"]))


def row(name: str, result: Result, floor: Result) -> str:
    paced = result["paced"]
    added = paced["added_us"]
    cells = [
        name,
        f"{added['p50'] / 1000:.2f}",
        f"{added['p99'] / 1000:.2f}",
        f"{added['p50'] / floor['paced']['added_us']['p50']:.2f}",
        f"{cost(result, 'paced'):.0f}",
        f"{cost(result, 'paced') / cost(floor, 'paced'):.2f}",
    ]
    if "burst" in result:
        cells += [
            f"{cost(result, 'burst'):.1f}",
            f"{cost(result, 'burst') / cost(floor, 'burst'):.2f}",
        ]
    else:
        cells += ["", ""]
    got = result["got"]
    cells += [str(got.get("frames", "")), str(got.get("gaps", "")), str(paced["failed"])]
    return f"| {' | '.join(cells)} |"


HEADS = (
    "followers", "added p50 ms", "p99", "p50 to floor", "CPU µs a paced chunk", "to floor",
    "CPU µs a burst chunk", "to floor", "frames got", "gaps", "failed",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--crowd", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    processes.raise_descriptor_limit()
    cores = Cores.pick()
    effort = replace(Effort.quick(), seconds=options.seconds)
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        provider = processes.free_port()
        command = [sys.executable, "-m", "benchmarks.fake_provider", "--port", str(provider)]
        server = Server([*command, "--cpu", str(cores.load)], folder / "provider.log")
        try:
            server.wait_for_port(provider)
            for _ in range(options.rounds):
                for mode in modes(options.crowd):
                    print(f"# {mode.name}", file=sys.stderr, flush=True)
                    found = measure(mode, provider, folder, cores, effort)
                    results[mode.name] = better(results.get(mode.name), found)
        finally:
            server.stop()
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{' --- |' * len(HEADS)}")
    for mode in modes(options.crowd):
        floor = results["off" if mode.clients > 1 else "off, one stream"]
        print(row(mode.name, results[mode.name], floor))
    return 0


if __name__ == "__main__":
    sys.exit(main())
