"""Bytes to values and back. No policy, no clock, no I/O."""
