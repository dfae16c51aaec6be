"""Faults between keys are found, also where other keys have faults of their own."""

import tomllib
from typing import Any

import pytest

from edge.settings.cross_checks import cross_complaints

SOUND = """
[[providers]]
name = "gpu1"
base_url = "http://h/v1"
[[routes]]
model = "coder"
targets = [{ provider = "gpu1" }]
"""


def found(text: str) -> list[str]:
    return [str(complaint) for complaint in cross_complaints(tomllib.loads(text))]


def test_a_sound_configuration_has_none() -> None:
    assert found(SOUND) == []


@pytest.mark.parametrize(
    ("table", "key", "other"),
    [
        ("keys", "name", 'key = "env:A"'),
        ("providers", "name", 'base_url = "http://h/v1"'),
        ("routes", "model", 'targets = [{ provider = "gpu1" }]'),
    ],
)
def test_a_name_is_used_once(table: str, key: str, other: str) -> None:
    entry = f'[[{table}]]\n{key} = "twin"\n{other}\n'

    (complaint,) = found(SOUND + entry + entry)

    first, second = (0, 1) if table == "keys" else (1, 2)
    assert complaint == f'{table}[{second}].{key}: "twin" is used by {table}[{first}] already'


def test_a_target_points_at_a_provider() -> None:
    text = SOUND.replace('provider = "gpu1"', 'provider = "gpu2"')

    assert found(text) == [
        'routes[0].targets[0].provider: no provider is called "gpu2"; did you mean "gpu1"?'
    ]


def test_a_fault_elsewhere_in_a_provider_does_not_make_its_targets_dangle() -> None:
    assert found(SOUND.replace('"http://h/v1"', "3")) == []


def test_a_route_has_a_target() -> None:
    text = SOUND.replace('[{ provider = "gpu1" }]', "[]")

    assert found(text) == ["routes[0].targets: at least one target is needed"]


def test_there_is_a_provider_and_a_route() -> None:
    places = [complaint.place for complaint in cross_complaints({})]

    assert places == ["providers", "routes"]


def test_an_openai_provider_has_an_address_and_a_simulated_one_has_none() -> None:
    text = """
    [[providers]]
    name = "a"
    [[providers]]
    name = "b"
    kind = "simulated"
    base_url = "http://h/v1"
    api_key = "env:A"
    [[routes]]
    model = "*"
    targets = [{ provider = "a" }, { provider = "b" }]
    """

    places = [complaint.place for complaint in cross_complaints(tomllib.loads(text))]

    assert places == ["providers[0].base_url", "providers[1].base_url", "providers[1].api_key"]


def server(table: str, keys: str = "") -> list[str]:
    return found(f"[server]\n{table}\n{keys}{SOUND}")


KEY = '[[keys]]\nname = "a"\nkey = "env:A"\n'


@pytest.mark.parametrize("address", ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "gateway:80"])
def test_without_keys_only_this_machine_is_served(address: str) -> None:
    bind = f'bind = ["127.0.0.1:80", "{address}"]'

    (complaint,) = server(bind)

    assert complaint.startswith(f"server.bind[1]: {address} can be reached by other machines")
    assert server(bind, KEY) == []
    assert server(f"{bind}\nallow_open = true") == []


def test_allow_open_must_be_true_and_not_merely_set() -> None:
    assert server('bind = ["0.0.0.0:80"]\nallow_open = "yes"') != []


def test_an_address_is_listed_once_but_any_free_port_may_be_asked_for_twice() -> None:
    assert server('bind = ["127.0.0.1:80", "127.0.0.1:80"]') == [
        "server.bind[1]: 127.0.0.1:80 is listed twice"
    ]
    assert server('bind = ["127.0.0.1:0", "127.0.0.1:0"]') == []
    assert server("bind = []") == ["server.bind: at least one address is needed"]


def test_a_key_is_only_given_models_that_a_route_serves() -> None:
    keys = KEY + 'models = ["coder", "codre"]\n'

    assert server("", keys) == ['keys[0].models[1]: no route serves "codre"; did you mean "coder"?']
    wild = f"{keys}{SOUND}".replace('model = "coder"', 'model = "*"')
    assert found(wild) == []


@pytest.mark.parametrize("shape", [3, "x", [], [3], {}, {"a": []}, None])
@pytest.mark.parametrize("table", ["server", "keys", "providers", "routes"])
def test_tables_of_any_wrong_shape_are_skipped(table: str, shape: Any) -> None:
    tree: dict[str, Any] = tomllib.loads(SOUND + KEY)
    tree[table] = shape

    for complaint in cross_complaints(tree):
        assert complaint.message


@pytest.mark.parametrize("bind", [3, "x", [3], ["x"], {}])
def test_addresses_of_a_wrong_shape_are_left_to_the_field_itself(bind: Any) -> None:
    tree: dict[str, Any] = tomllib.loads(SOUND)
    tree["server"] = {"bind": bind}

    assert cross_complaints(tree) == []
