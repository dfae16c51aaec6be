"""Where settings come from, and that everything wrong with them is told at once."""

import os
from pathlib import Path
from typing import Any

import pytest

from edge.core.output_policy import OutputPolicy
from edge.settings import Address, Settings, SettingsError, Surroundings

SMALLEST = """
[[providers]]
name = "gpu1"
base_url = "http://127.0.0.1:8000/v1"

[[routes]]
model = "*"
targets = [{ provider = "gpu1" }]
"""


def complaints(text: str, **options: Any) -> list[str]:
    """All complaints about a text, as ``place: message``."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_toml(text, **options)
    return [str(complaint) for complaint in caught.value.complaints]


def test_the_smallest_file_is_filled_with_the_documented_defaults() -> None:
    settings = Settings.from_toml(SMALLEST)

    assert settings.server.bind == (Address("127.0.0.1", 8080),)
    assert settings.limits.max_runs == 2000
    assert settings.providers[0].path == "auto"
    assert settings.routes[0].policy == "least_busy"
    assert settings.routes[0].output == OutputPolicy()


def test_a_route_lays_its_own_output_over_the_common_one_key_by_key() -> None:
    settings = Settings.from_toml(
        """
        [output]
        max_attempts = 2
        buffer = "full"
        [[providers]]
        name = "gpu1"
        base_url = "http://127.0.0.1:8000/v1"
        [[routes]]
        model = "plain"
        targets = [{ provider = "gpu1" }]
        [[routes]]
        model = "own"
        targets = [{ provider = "gpu1" }]
        [routes.output]
        max_attempts = 5
        heartbeat_s = 3
        """
    )

    plain, own = settings.routes
    assert plain.output == settings.output == OutputPolicy(max_attempts=2, buffer="full")
    assert own.output == OutputPolicy(max_attempts=5, buffer="full", heartbeat_s=3.0)


def test_every_fault_is_told_in_one_go_in_the_order_of_the_file() -> None:
    found = complaints(
        """
        [server]
        bind = ["nowhere"]
        drian_s = 3
        [[providers]]
        name = "gpu1"
        base_url = "ftp://h/v1"
        connect_timeout_s = "5"
        [[routes]]
        model = "coder"
        targets = [{ provider = "gpu2" }]
        [routes.output]
        validate = "maybe"
        [limits]
        queue = -1
        """
    )

    assert [line.partition(":")[0] for line in found] == [
        "server.bind[0]",
        "server.drian_s",
        "providers[0].base_url",
        "providers[0].connect_timeout_s",
        "routes[0].targets[0].provider",
        "routes[0].output.validate",
        "limits.queue",
    ]


def test_a_complaint_has_the_line_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text("[server]\n\n# a comment\ndrian_s = 3\n" + SMALLEST)

    with pytest.raises(SettingsError) as caught:
        Settings.from_file(path)

    assert caught.value.lines() == [
        f'{path}:4: server.drian_s: unknown key; did you mean "drain_s"?'
    ]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("[server\n", "no sound TOML"),
        ("[server]\na = 1\na = 2\n", "no sound TOML"),
    ],
)
def test_what_is_no_toml_is_one_complaint_with_its_line(bad: str, words: str) -> None:
    (found,) = complaints(bad)

    assert words in found
    assert "line" in found


def test_a_file_that_is_not_there_or_not_text_is_a_complaint(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")

    for name, words in [("none.toml", "No such file"), ("bytes.toml", "not UTF-8")]:
        with pytest.raises(SettingsError, match=words):
            Settings.from_file(tmp_path / name)


def test_an_upstream_alone_is_a_whole_gateway() -> None:
    settings = Settings.from_upstream("http://127.0.0.1:8000/v1/", "KEY", environ={"KEY": "sk-x"})

    (provider,) = settings.providers
    (route,) = settings.routes
    assert (provider.name, provider.base_url) == ("upstream", "http://127.0.0.1:8000/v1")
    assert provider.api_key is not None
    assert provider.api_key.value == "sk-x"
    assert (route.model, route.targets[0].provider) == ("*", "upstream")


@pytest.mark.parametrize("url", ["http://gpu:8000", "http://gpu:8000/"])
def test_an_upstream_without_a_path_means_its_v1(url: str) -> None:
    assert Settings.from_upstream(url).providers[0].base_url == "http://gpu:8000/v1"


def test_an_upstream_with_another_path_keeps_it() -> None:
    url = "https://host/openai/deployments/x"

    assert Settings.from_upstream(url).providers[0].base_url == url


def test_faults_of_the_command_line_are_told_by_the_name_of_the_option() -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_upstream("gpu:8000", "NOPE", environ={}, bind=["x"], workers=0)

    places = [complaint.place for complaint in caught.value.complaints]
    assert sorted(places) == ["--api-key-env", "--bind", "--upstream", "--workers"]


@pytest.mark.parametrize("url", ["http://[::1", "", "://", "http://h:x"])
def test_an_upstream_that_is_no_address_is_told_like_any_other_fault(url: str) -> None:
    with pytest.raises(SettingsError, match="--upstream: must be an http"):
        Settings.from_upstream(url)


def test_a_server_table_of_the_wrong_shape_does_not_hide_behind_the_command_line() -> None:
    found = complaints(f"server = 3\n{SMALLEST}", bind=["127.0.0.1:1"], workers=1)

    assert found == ["server: must be a table, not 3"]


def test_the_command_line_goes_before_the_file() -> None:
    settings = Settings.from_toml(
        f'[server]\nbind = ["127.0.0.1:1"]\n{SMALLEST}', bind=["127.0.0.1:2", "[::1]:3"]
    )

    assert settings.server.bind == (Address("127.0.0.1", 2), Address("::1", 3))


def test_a_line_is_not_given_for_what_the_command_line_says(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text(f'[server]\nbind = ["127.0.0.1:1"]\n{SMALLEST}')

    with pytest.raises(SettingsError) as caught:
        Settings.from_file(path, bind=["0.0.0.0:80"])

    (line,) = caught.value.lines()
    assert line.startswith("--bind: 0.0.0.0:80 can be reached by other machines")


def test_nothing_configured_serves_the_three_simulated_models() -> None:
    settings = Settings.simulated()

    assert [route.model for route in settings.routes] == ["sim-echo", "sim-tools", "sim-slow"]
    assert [provider.kind for provider in settings.providers] == ["simulated"]


def test_two_keys_with_one_secret_are_refused_without_showing_it(tmp_path: Path) -> None:
    around = Surroundings(environ={"A": "sk-same", "B": "sk-same"}, folder=tmp_path)
    text = SMALLEST + ('[[keys]]\nname = "a"\nkey = "env:A"\n[[keys]]\nname = "b"\nkey = "env:B"\n')

    (found,) = complaints(text, around=around)

    assert found == "keys[1].key: is the same secret as a's"


def test_no_secret_shows_in_the_settings(tmp_path: Path) -> None:
    around = Surroundings(environ={"A": "sk-hidden"}, folder=tmp_path)
    text = SMALLEST + '[[keys]]\nname = "a"\nkey = "env:A"\n'

    settings = Settings.from_toml(text, around=around)

    assert settings.keys[0].key.value == "sk-hidden"
    assert "sk-hidden" not in repr(settings)
    assert "env:A" in repr(settings)


def test_relative_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-from-file\n")
    (tmp_path / "edge.toml").write_text(
        SMALLEST + '[[keys]]\nname = "a"\nkey = "file:key"\n[telemetry]\nledger = "edge.db"\n'
    )

    settings = Settings.from_file(tmp_path / "edge.toml")

    assert settings.keys[0].key.value == "sk-from-file"
    assert settings.telemetry.ledger == tmp_path / "edge.db"


def test_the_tree_of_a_file_is_read_from_this_processs_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "EDGE_TEST_KEY", "sk-env")

    settings = Settings.from_toml(SMALLEST + '[[keys]]\nname = "a"\nkey = "env:EDGE_TEST_KEY"\n')

    assert settings.keys[0].key.value == "sk-env"
