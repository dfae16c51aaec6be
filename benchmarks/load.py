"""The load: many clients in one epoll loop, kept as light as Python can be.

    python -m benchmarks.load --port 8080 --model live --concurrency 16 --seconds 3 --chunks 50

Prints one JSON object. Bounded in time and count, loopback only. How it loads is told in
``clients``; what counts:

* rates: what arrived between the end of the ramp and the end of the measured time;
* ``added``: now minus stamp for every chunk that arrived, or with ``--held`` for the last one of an
  answer alone, since an answer that is held back to be judged leaves in one piece;
* ``first``: from the request's write to its first chunk;
* ``noticed`` (``--leave-after``, ``--leave-ms``): from our close to the provider's noticing it;
* with ``--hold``: every client opens one stream and keeps it open until standard input ends, so
  that memory can be read meanwhile.
"""

import argparse
import gc
import json
import os
import sys
from time import monotonic_ns
from typing import Any

from benchmarks.clients import Load, LoadPlan
from benchmarks.http_get import get_json
from benchmarks.percentiles import summary_us
from benchmarks.processes import pause
from benchmarks.wire_text import Plan

MAX_SECONDS = 60.0
MAX_CONCURRENCY = 4000


def noticed_us(left: dict[int, int], provider_port: int, patience_s: float) -> dict[str, Any]:
    """How long after each client left the provider noticed it; ``lost`` are those it never did."""
    until = monotonic_ns() + int(patience_s * 1e9)
    while True:
        seen = dict(get_json(provider_port, "/stats")["noticed"])
        found = [seen[ident] - at for ident, at in left.items() if ident in seen]
        if len(found) == len(left) or monotonic_ns() > until:
            return {"seen": len(found), "lost": len(left) - len(found), **summary_us(found)}
        pause(0.1)


def report(load: Load, provider_port: int) -> dict[str, Any]:
    """The JSON object of a run; times in microseconds."""
    tally, plan = load.tally, load.plan
    seconds = plan.seconds
    result: dict[str, Any] = {
        "concurrency": plan.concurrency,
        "seconds": seconds,
        "started": tally.started,
        "finished": tally.finished,
        "chunks": tally.chunks,
        "failed": tally.failed,
        "unfinished": tally.unfinished,
        "stale": tally.stale,
        "requests_per_s": tally.finished_in_time / seconds,
        "chunks_per_s": tally.chunks_in_time / seconds,
        "added_us": summary_us(tally.added),
        "first_us": summary_us(tally.first),
        "total_us": summary_us(tally.total),
        "first_error": tally.first_error,
    }
    if tally.left and provider_port:
        result["noticed_us"] = noticed_us(tally.left, provider_port, 3.0)
    return result


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--provider-port", type=int, default=0, help="where /stats is")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--ramp", type=float, default=0.0)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--chunks", type=int, default=50)
    parser.add_argument("--gap-us", type=int, default=0)
    parser.add_argument("--silent-after", type=int, default=-1)
    parser.add_argument("--leave-after", type=int, default=-1, help="chunks")
    parser.add_argument("--leave-ms", type=int, default=-1)
    parser.add_argument("--cpu", type=int, default=-1)
    for flag in ("--no-stream", "--tools", "--call", "--held", "--hold"):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse(sys.argv[1:])
    if options.cpu >= 0:
        os.sched_setaffinity(0, {options.cpu})
    load = Load(
        LoadPlan(
            port=options.port,
            model=options.model,
            concurrency=max(1, min(options.concurrency, MAX_CONCURRENCY)),
            seconds=min(options.seconds, MAX_SECONDS),
            plan=Plan(options.chunks, options.gap_us, options.silent_after, options.call),
            stream=not options.no_stream,
            tools=options.tools,
            held=options.held,
            leave_after=options.leave_after,
            leave_ms=options.leave_ms,
            count=options.count,
            ramp_s=options.ramp,
        )
    )
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a pause would be measured as latency
    if options.hold:
        load.hold()
        return
    load.run()
    print(json.dumps(report(load, options.provider_port)))


if __name__ == "__main__":
    main()
