"""Fuzzes one target in this process: ``python -m fuzz.drive TARGET [libFuzzer's own flags]``.

The last arguments are folders of inputs, of which libFuzzer writes to the first.
"""

import logging
import sys

import atheris
import structlog

from fuzz.target import load


def main() -> None:
    """Instrument the gateway, load the target, and go; does not return."""
    name, *flags = sys.argv[1:]
    # Only what is ours: the judges themselves tell the fuzzer nothing.
    with atheris.instrument_imports(include=["edge"], enable_loader_override=False):
        target = load(name)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    atheris.Setup([sys.argv[0], *flags], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
