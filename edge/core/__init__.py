"""Decisions: pure functions and feed/finish machines. No I/O, clock, randomness or logging."""
