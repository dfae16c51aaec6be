"""Runs: dispatch, the attempt loop, cancellation. Decisions are taken in core."""
