"""How the collector of cyclic garbage is set up in a process that serves."""

import gc

YOUNG_OBJECTS = 100_000
"""New objects between two looks at the young ones. However a request ends, it leaves no cycles
(``errors.forget_frames``; ``tests/behaviours/test_garbage.py`` says so for every way), so there is
little to find, and a look that comes rarely is a pause that comes rarely."""


def settle() -> None:
    """Take what start-up made out of the collector's sight; call it once, when all is ready.

    Pauses of the collector are every stream's pauses: with the interpreter's own settings they
    made up the 99th percentile of the added latency (docs/design/030).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
