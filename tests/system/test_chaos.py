"""Providers, workers and clients die at random; afterwards the books agree.

``EDGE_CHAOS_S=120`` makes it two minutes. ``python -m benchmarks.chaos`` is the same, with figures.
"""

import os
import random
import sys
from pathlib import Path

import pytest
import trio

from benchmarks.chaos import chaos

SECONDS = float(os.environ.get("EDGE_CHAOS_S", "4"))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


async def test_every_request_is_accounted_for_once_whatever_dies_meanwhile(tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)  # noqa: S311 - chance, no secret

    books, figures = await trio.to_thread.run_sync(chaos, tmp_path, SECONDS, seed)

    assert {each.says: each.examples for each in books.sums if each.faults} == {}, seed
    assert figures["workers_killed"] > 0
    assert figures["providers_killed"] > 0
    assert figures["ends"]["whole"] > 0
    assert figures["ends"]["left"] > 0
