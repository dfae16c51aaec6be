"""Hypothesis profiles for the whole suite, and a collector that does not look at all of it.

``dev`` is quick, ``ci`` is repeatable (the same examples in every run, so that a red build is
about the change in it), ``deep`` is for an evening. Chosen by ``HYPOTHESIS_PROFILE``.
"""

import gc
import os

from hypothesis import settings

# No deadline per example: on a busy machine it would report the machine.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_finish() -> None:
    """Take thousands of items out of the collector's sight: each look took a third of a second."""
    gc.collect()
    gc.freeze()
