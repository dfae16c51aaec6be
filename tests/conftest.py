"""Hypothesis profiles for the whole suite.

``dev`` is quick, ``ci`` is repeatable (the same examples in every run, so that a red build is
about the change in it), ``deep`` is for an evening. Chosen by ``HYPOTHESIS_PROFILE``.
"""

import os

from hypothesis import settings

# No deadline per example: on a busy machine it would report the machine.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("deep", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
