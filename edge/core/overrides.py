"""What a single request may change of its route's output policy.

Two ways to say it: the header ``x-edge-output: buffer=full; validate=observe``, and string values
in the body's ``metadata`` under ``edge.`` (``{"edge.buffer": "full"}``). A header is often a
default of the client or of a proxy, the body belongs to this one request: where both name a key,
the body wins.

Every key of the policy may be set. What costs the gateway can only be lowered: a request may ask
for fewer attempts, less time and less held memory than its route is configured to spend, never for
more. Heartbeats may be rarer, and as frequent as :data:`MIN_HEARTBEAT_S` (or the configured
interval, where that is shorter). What is out of bounds is refused, not silently clamped: an answer
that was made under other terms than the ones asked for would be a lie.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from edge.core.near_match import did_you_mean, shown
from edge.core.output_keys import OUTPUT_KEYS
from edge.core.output_policy import OutputPolicy
from edge.errors import InvalidRequest

HEADER = "x-edge-output"
PREFIX = "edge."

LOWERED_ONLY = frozenset({"max_attempts", "run_timeout_s", "max_held_bytes"})
"""Budgets: the configured value is the most a request may ask for."""

MIN_HEARTBEAT_S = 1.0
"""A comment per second holds any connection open; more often would be a way to make us busy."""


def apply_overrides(
    policy: OutputPolicy,
    *,
    header: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> OutputPolicy:
    """The policy as this request wants it.

    Args:
        policy: the route's policy.
        header: value of ``x-edge-output``; several such headers are joined with ``;``.
        metadata: the body's ``metadata``; keys without the prefix ``edge.`` are not looked at.

    Raises:
        InvalidRequest: an unknown key, a bad value or one out of bounds; ``param`` names the key,
            as ``x-edge-output.buffer`` or ``metadata.edge.buffer``.
    """
    if not header and not metadata:
        return policy
    changes: dict[str, Any] = {}
    for name, text in _header_pairs(header or ""):
        changes[name] = _value(policy, name, text, place=f"{HEADER}.{name}")
    for name, text in _metadata_pairs(metadata or {}):
        changes[name] = _value(policy, name, text, place=f"metadata.{PREFIX}{name}")
    return replace(policy, **changes) if changes else policy


def foreign_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``metadata`` that is not ours: what may travel on to a provider."""
    return {key: value for key, value in metadata.items() if not key.startswith(PREFIX)}


def _header_pairs(header: str) -> Iterable[tuple[str, str]]:
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in header.split(";"))):
        name, equals, text = part.partition("=")
        name = name.strip()
        if not equals:
            raise InvalidRequest(f"{HEADER}: {shown(part)} is not key=value", param=HEADER)
        if name in pairs:
            raise InvalidRequest(f"{HEADER}: {name} is set twice", param=f"{HEADER}.{name}")
        pairs[name] = text.strip()
    return pairs.items()


def _metadata_pairs(metadata: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return [
        (key.removeprefix(PREFIX), value)
        for key, value in metadata.items()
        if key.startswith(PREFIX)
    ]


def _value(policy: OutputPolicy, name: str, text: object, *, place: str) -> object:
    """The typed value of one override, within the bounds of the route's policy."""
    key = OUTPUT_KEYS.get(name)
    if key is None:
        raise InvalidRequest(f"{place}: no such key{did_you_mean(name, OUTPUT_KEYS)}", param=place)
    if not isinstance(text, str):
        raise InvalidRequest(f"{place}: must be a string, not {shown(text)}", param=place)
    try:
        value = key.parse(text)
        _check_bounds(policy, name, value)
    except ValueError as error:
        raise InvalidRequest(f"{place}: {error}", param=place) from None
    return value


def _check_bounds(policy: OutputPolicy, name: str, value: Any) -> None:
    configured = getattr(policy, name)
    if name in LOWERED_ONLY and value > configured:
        raise ValueError(f"must be at most {configured}, as configured, not {shown(value)}")
    least = min(MIN_HEARTBEAT_S, policy.heartbeat_s)
    if name == "heartbeat_s" and value < least:
        raise ValueError(f"must be at least {least:g}, not {shown(value)}")
