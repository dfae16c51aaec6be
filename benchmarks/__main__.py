"""Measure everything: ``python -m benchmarks [--quick] [--only NAME…]``.

Runs the fake provider, then each target in turn, prints the table, and writes the numbers and the
plot to ``benchmarks/results/``. Targets are measured one at a time; nothing else should run on the
machine meanwhile.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import floors, plot, processes, table
from benchmarks.chunk_latency import Effort, Measurement
from benchmarks.floors import TARGETS, Target
from benchmarks.processes import Cores, Server

RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_at_start": round(os.getloadavg()[0], 2),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def measure(
    targets: list[Target], effort: Effort, cores: Cores, workers: int, folder: Path
) -> dict[str, Any]:
    """Every target's phases; one that fails has the reason under ``failed``."""
    results: dict[str, Any] = {}
    port = processes.free_port()
    command = [sys.executable, "-m", "benchmarks.fake_provider", "--port", str(port)]
    provider = Server([*command, "--cpu", str(cores.load)], folder / "provider.log")
    try:
        provider.wait_for_port(port)
        for target in targets:
            print(f"# {target.name}: {target.about}", file=sys.stderr, flush=True)
            results[target.name] = _measure_one(target, port, effort, cores, workers, folder)
    finally:
        provider.stop()
    return results


def _measure_one(
    target: Target, provider: int, effort: Effort, cores: Cores, workers: int, folder: Path
) -> dict[str, Any]:
    if reason := floors.unavailable(target):
        return {"failed": reason}
    try:
        with floors.started(target, provider, folder, cores, workers) as running:
            measurement = Measurement(running, provider, cores, effort)
            measurement.warm_up()
            return dict(measurement.all_phases())
    except (RuntimeError, OSError) as error:  # one target's failure must not cost the others
        print(f"# {target.name} failed: {error}", file=sys.stderr)
        return {"failed": str(error)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a second a phase, 1 and 16 streams")
    parser.add_argument("--only", nargs="+", choices=[t.name for t in TARGETS], metavar="NAME")
    parser.add_argument("--concurrency", type=int, nargs="+", metavar="N")
    parser.add_argument("--seconds", type=float, help="of each phase, at most 30")
    parser.add_argument("--workers", type=int, default=1, help="of the gateway; not pinned above 1")
    parser.add_argument("--no-pin", action="store_true", help="let everything use every core")
    parser.add_argument("--json", type=Path, help="where the numbers go (default: results/)")
    parser.add_argument("--keep", type=Path, help="keep configurations and logs in this folder")
    return parser.parse_args()


def effort_of(options: argparse.Namespace) -> Effort:
    effort = Effort.quick() if options.quick else Effort.full()
    return Effort(
        seconds=min(options.seconds or effort.seconds, 30.0),
        concurrency=tuple(sorted(options.concurrency or effort.concurrency)),
        hangups=effort.hangups,
        open_streams=effort.open_streams,
    )


def main() -> int:
    options = parse()
    effort = effort_of(options)
    processes.raise_descriptor_limit()
    wanted = [t for t in TARGETS if not options.only or t.name in options.only]
    about = machine()
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cores = Cores.pick(pinned=not options.no_pin)
        results = measure(wanted, effort, cores, options.workers, folder)
    stamp = about["when"].replace(":", "").replace("-", "")[:15]
    path = options.json or RESULTS / f"{stamp}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"machine": about, "effort": effort.concurrency, "results": results}
    path.write_text(json.dumps(record, indent=1))
    title = f"Added per chunk over load ({about['cores']} cores, Python {about['python']})"
    path.with_suffix(".svg").write_text(plot.latency_svg(results, effort.concurrency, title))
    print(table.render(results, effort.concurrency))
    print(f"\n{json.dumps(about)}\nnumbers: {path}\nplot: {path.with_suffix('.svg')}")
    return 1 if any("failed" in phases for phases in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
