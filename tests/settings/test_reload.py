"""What a gateway that serves takes of a new configuration."""

from pathlib import Path

import pytest

from edge.settings import Settings, SettingsError, Surroundings, for_reload

AROUND = Surroundings(environ={"A": "secret-a"}, folder=Path())
KEY = '[[keys]]\nname = "a"\nkey = "env:A"\n'


def settings(more: str = "", *, model: str = "coder") -> Settings:
    text = f"""
    {more}
    [[providers]]
    name = "gpu1"
    base_url = "http://h/v1"
    [[routes]]
    model = "{model}"
    targets = [{{ provider = "gpu1" }}]
    """
    return Settings.from_toml(text, around=AROUND)


def test_routes_providers_keys_and_policies_are_taken() -> None:
    running = settings()
    wanted = settings(f"{KEY}[output]\nmax_attempts = 5\n", model="other")

    assert for_reload(running, wanted) == (wanted, ())


def test_the_web_pages_that_may_call_are_taken() -> None:
    wanted = settings('[server]\ncors_origins = ["https://chat.example"]\n')

    assert for_reload(settings(), wanted) == (wanted, ())


def test_what_was_made_at_the_start_stays_and_is_named() -> None:
    running = settings()
    wanted = settings("[server]\nworkers = 3\n[limits]\nqueue = 1\n[telemetry]\nlog = 'off'\n")

    assert for_reload(running, wanted) == (
        running,
        ("server.workers", "limits.queue", "telemetry.log"),
    )


def test_a_door_that_only_the_old_address_opens_stays_shut() -> None:
    running = settings(f'{KEY}[server]\nbind = ["0.0.0.0:8080"]\n')

    with pytest.raises(SettingsError, match=r"0\.0\.0\.0:8080 is still listened on"):
        for_reload(running, settings())


def test_a_door_that_was_opened_on_purpose_may_be_open() -> None:
    running = settings(f'{KEY}[server]\nbind = ["0.0.0.0:8080"]\nallow_open = true\n')

    taken, changed = for_reload(running, settings())

    assert (taken.keys, changed) == ((), ("server.bind", "server.allow_open"))
