"""How the collector of cyclic garbage is set up in a process that serves."""

import gc

YOUNG_OBJECTS = 3_000
"""New objects between two looks at the young ones. A look visits each of them once, so that few are
a short pause: 100,000 rows and frames that are kept in memory were one of 40 ms."""

YOUNG_LOOKS = 600
"""Looks at the young between two at those that have been looked at. However a request ends, it
leaves no cycles (``errors.forget_frames``; ``tests/behaviours/test_garbage.py`` says so for every
way), so there is little to find, and a long pause that comes rarely is best."""


def settle() -> None:
    """Take what start-up made out of the collector's sight; call it once, when all is ready.

    Pauses of the collector are every stream's pauses: with the interpreter's own settings they
    made up the 99th percentile of the added latency (docs/design/030).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_LOOKS, 20)
