"""Strictness: nothing is converted, nothing unknown passes, each bad field is told exactly once."""

import tomllib
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.settings import Settings, SettingsError, Surroundings
from edge.settings.structure import structure

AROUND = Surroundings(environ={"KEY": "sk-1", "EMPTY": ""}, folder=Path(__file__).parent)

FULL = """
[server]
bind = ["127.0.0.1:8080", "[::1]:8080"]
workers = 1
drain_s = 30
write_timeout_s = 30
max_body_bytes = 33554432
cors_origins = ["https://chat.example"]
allow_open = false

[[keys]]
name = "team-a"
key = "env:KEY"
max_concurrent = 50
models = ["coder"]
observe = true
mirror = false
cancel = false

[[providers]]
name = "gpu1"
kind = "openai"
base_url = "http://127.0.0.1:8000/v1"
api_key = "env:KEY"
path = "auto"
max_concurrent = 64
connect_timeout_s = 5
first_token_timeout_s = 120
idle_timeout_s = 60.5
on_give_up = "drain"
drain_s = 5
drain_tokens = 100
strict_tools = true
ask_usage = false
send_metadata = true
verify = false
ca_file = "test_structure.py"

[[routes]]
model = "coder"
policy = "weighted"
targets = [{ provider = "gpu1", model = "qwen3-coder", weight = 2 }]
[routes.output]
buffer = "full"

[output]
buffer = "tool_calls"
validate = "observe"
recover = true
forms = ["hermes"]
repair = true
max_attempts = 3
feedback = true
constrain_last_attempt = true
heal_history = true
strict = false
xml_completion_tool = "attempt_completion"
trace = false
heartbeat_s = 10
run_timeout_s = 600
max_held_bytes = 8388608

[limits]
max_runs = 2000
queue = 2000
queue_timeout_s = 30

[mirror]
replay_bytes = 262144
subscriber_buffer = 256

[telemetry]
log = "json"
trace_content = false
ledger = ""
"""


def full() -> dict[str, Any]:
    """A tree that uses every key."""
    return tomllib.loads(FULL)


def complaints(tree: dict[str, Any]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        structure(tree, Settings, AROUND)
    return [str(complaint) for complaint in caught.value.complaints]


def table_at(tree: dict[str, Any], place: str) -> dict[str, Any]:
    """The table at a place such as ``routes[0].targets[0]``."""
    found: Any = tree
    for part in place.replace("[", ".").replace("]", "").split("."):
        found = found[int(part) if part.isdigit() else part]
    assert isinstance(found, dict)
    return found


TABLES = [
    "server",
    "keys[0]",
    "providers[0]",
    "routes[0]",
    "routes[0].targets[0]",
    "routes[0].output",
    "output",
    "limits",
    "mirror",
    "telemetry",
]


def test_a_file_that_uses_every_key_is_sound() -> None:
    settings = structure(full(), Settings, AROUND)

    assert settings.providers[0].idle_timeout_s == 60.5
    assert settings.providers[0].connect_timeout_s == 5.0
    assert isinstance(settings.providers[0].connect_timeout_s, float)
    assert settings.routes[0].targets[0].weight == 2.0
    assert settings.telemetry.ledger is None


def test_the_settings_and_the_tree_they_came_from_stay_as_they_are() -> None:
    tree = full()
    settings = structure(tree, Settings, AROUND)

    with pytest.raises(FrozenInstanceError):
        settings.server.workers = 2  # type: ignore[misc]  # what is tried here
    assert tree == full()


@pytest.mark.parametrize("place", TABLES)
def test_an_unknown_key_is_refused_in_every_table(place: str) -> None:
    tree = full()
    table_at(tree, place)["surprise"] = 1

    assert complaints(tree) == [f"{place}.surprise: unknown key"]


@pytest.mark.parametrize(
    ("place", "wrong", "right"),
    [
        ("server", "drain", "drain_s"),
        ("providers[0]", "conect_timeout_s", "connect_timeout_s"),
        ("routes[0].targets[0]", "wieght", "weight"),
        ("routes[0].output", "bufer", "buffer"),
        ("output", "max_attempt", "max_attempts"),
    ],
)
def test_the_nearest_key_is_suggested_for_a_misspelt_one(
    place: str, wrong: str, right: str
) -> None:
    tree = full()
    table = table_at(tree, place)
    table[wrong] = table.get(right, 1)

    assert complaints(tree) == [f'{place}.{wrong}: unknown key; did you mean "{right}"?']


def test_a_misspelt_table_gets_a_suggestion_too() -> None:
    tree = full()
    tree["telemetri"] = {}

    assert complaints(tree) == ['telemetri: unknown key; did you mean "telemetry"?']


@pytest.mark.parametrize(
    ("place", "key", "value", "message"),
    [
        ("server", "drain_s", 0, "must be above 0, not 0"),
        ("server", "drain_s", True, "must be a number, not true"),
        ("server", "drain_s", float("nan"), "must be above 0, not nan"),
        ("server", "drain_s", float("inf"), "must be above 0, not inf"),
        ("server", "workers", 1.0, "must be a whole number, not 1.0"),
        ("server", "workers", True, "must be a whole number, not true"),
        ("server", "max_body_bytes", 0, "must be at least 1, not 0"),
        ("server", "allow_open", "true", 'must be true or false, not "true"'),
        ("server", "allow_open", 1, "must be true or false, not 1"),
        ("server", "bind", [80], 'must be a text like "127.0.0.1:8080", not 80'),
        ("server", "cors_origins", "*", 'must be a list, not "*"'),
        ("keys[0]", "max_concurrent", -1, "must be at least 0, not -1"),
        ("providers[0]", "base_url", 8000, "must be a text, not 8000"),
        ("providers[0]", "verify", "no", 'must be true or false, not "no"'),
        ("providers[0]", "ca_file", 3, "must be a path, not 3"),
        ("providers[0]", "on_give_up", ["drain"], 'must be "cancel" or "drain", not [\'drain\']'),
        ("routes[0].targets[0]", "weight", 0, "must be above 0, not 0"),
        ("routes[0].targets[0]", "model", None, "must be a text, not None"),
        ("output", "repair", "yes", 'must be true or false, not "yes"'),
        ("output", "max_attempts", 2.0, "must be a whole number from 1 to 20, not 2.0"),
        ("output", "heartbeat_s", "10", 'must be a positive number of seconds, not "10"'),
        ("routes[0].output", "max_attempts", 0, "must be a whole number from 1 to 20, not 0"),
    ],
)
def test_a_bad_value_is_told_once_with_what_it_must_be(
    place: str, key: str, value: object, message: str
) -> None:
    tree = full()
    table_at(tree, place)[key] = value

    index = "[0]" if key == "bind" else ""
    assert complaints(tree) == [f"{place}.{key}{index}: {message}"]


@pytest.mark.parametrize(
    ("place", "key"),
    [
        ("keys[0]", "name"),
        ("keys[0]", "key"),
        ("providers[0]", "base_url"),
        ("routes[0]", "model"),
        ("routes[0]", "targets"),
        ("routes[0].targets[0]", "provider"),
    ],
)
def test_a_required_key_that_is_missing_is_told(place: str, key: str) -> None:
    tree = full()
    tree["keys"][0]["models"] = []
    del table_at(tree, place)[key]

    (found,) = complaints(tree)

    assert found.startswith(f"{place}.{key}: is missing")


@pytest.mark.parametrize("place", ["server", "output", "limits", "keys", "routes"])
def test_a_table_of_the_wrong_shape_is_one_complaint(place: str) -> None:
    tree = full()
    tree[place] = 3

    found = complaints(tree)

    assert any(line.startswith(f"{place}: must be a ") for line in found)
    assert not any("unknown" in line for line in found)


def test_a_fault_of_the_common_output_is_not_told_again_for_each_route() -> None:
    tree = full()
    tree["output"]["buffer"] = "fully"

    (found,) = complaints(tree)

    assert found.startswith("output.buffer: ")


@given(place=st.sampled_from(TABLES), data=st.data())
def test_any_single_value_of_a_wrong_type_gives_exactly_one_complaint_at_its_place(
    place: str, data: st.DataObject
) -> None:
    tree = full()
    table = table_at(tree, place)
    scalars = sorted(key for key, value in table.items() if not isinstance(value, list | dict))
    key = data.draw(st.sampled_from(scalars))
    wrong = data.draw(st.sampled_from([{}, [], {"a": 1}, [1]]))
    # What else rests on these two keys is told as well, and rightly.
    if (place, key) in {("routes[0]", "model"), ("providers[0]", "name")}:
        tree["keys"][0]["models"] = []
        tree["routes"][0]["targets"] = tree["routes"][0]["targets"] if key == "model" else []
    table[key] = wrong

    at_place = [line for line in complaints(tree) if line.startswith(f"{place}.{key}: ")]

    assert len(at_place) == 1
