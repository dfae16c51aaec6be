"""Become another program on one core: ``python -m benchmarks.pin CORE COMMAND…``."""

import os
import sys


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - our own commands


if __name__ == "__main__":
    main()
