"""The whole configuration, and the three places it can come from."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edge.core.output_policy import OutputPolicy
from edge.settings.complaints import Complaint, SettingsError
from edge.settings.places import line_of, lines_of_places
from edge.settings.sections import (
    KeySettings,
    LimitsSettings,
    MirrorSettings,
    ProviderSettings,
    RouteSettings,
    ServerSettings,
    TelemetrySettings,
)
from edge.settings.structure import Surroundings, structure

SIMULATED_MODELS = ("sim-echo", "sim-tools", "sim-slow")
"""What the built-in provider serves where nothing is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that is configured, read once and never changed.

    Each constructor takes what the command line says about the server (``bind``, ``workers``),
    which goes before the file, and raises :class:`SettingsError` with every complaint.

    Attributes:
        output: ``[output]``; the routes hold it already, with their own keys over it.
    """

    server: ServerSettings = ServerSettings()
    keys: tuple[KeySettings, ...] = ()
    providers: tuple[ProviderSettings, ...] = ()
    routes: tuple[RouteSettings, ...] = ()
    output: OutputPolicy = OutputPolicy()
    limits: LimitsSettings = LimitsSettings()
    mirror: MirrorSettings = MirrorSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def secrets(self) -> list[str]:
        """Every configured secret, for whatever has to hide them."""
        keys = [key.key.value for key in self.keys]
        return keys + [each.api_key.value for each in self.providers if each.api_key]

    @classmethod
    def from_file(
        cls, path: Path | str, *, bind: Sequence[str] = (), workers: int | None = None
    ) -> "Settings":
        """A TOML file; relative paths in it start at its folder."""
        path = Path(path)
        try:
            text = path.read_bytes().decode()
        except OSError as error:
            raise _unreadable(path, error.strerror or "cannot be read") from None
        except UnicodeDecodeError:
            raise _unreadable(path, "is not UTF-8 text") from None
        around = Surroundings.of_process(path.parent)
        return cls.from_toml(text, source=str(path), around=around, bind=bind, workers=workers)

    @classmethod
    def from_toml(
        cls,
        text: str,
        *,
        source: str = "",
        around: Surroundings | None = None,
        bind: Sequence[str] = (),
        workers: int | None = None,
    ) -> "Settings":
        """A TOML text; ``source`` is what complaints call it."""
        try:
            tree = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError([Complaint("", f"no sound TOML: {error}")], source=source) from None
        lines = lines_of_places(text)
        return cls._structured(tree, around, bind, workers, lines=lines, source=source)

    @classmethod
    def from_upstream(
        cls,
        url: str,
        api_key_env: str = "",
        *,
        environ: Mapping[str, str] | None = None,
        bind: Sequence[str] = (),
        workers: int | None = None,
    ) -> "Settings":
        """One provider behind the route ``*``; a bare ``http://host:port`` means its ``/v1``."""
        provider = {"name": "upstream", "base_url": _with_v1(url)}
        if api_key_env:
            provider["api_key"] = f"env:{api_key_env}"
        tree = {
            "providers": [provider],
            "routes": [{"model": "*", "targets": [{"provider": "upstream"}]}],
        }
        flags = {"providers[0].base_url": "--upstream", "providers[0].api_key": "--api-key-env"}
        around = Surroundings(environ=os.environ if environ is None else environ, folder=Path())
        return cls._structured(tree, around, bind, workers, flags=flags)

    @classmethod
    def simulated(cls, *, bind: Sequence[str] = (), workers: int | None = None) -> "Settings":
        """The built-in provider and its three models: everything can be tried with no model."""
        tree = {
            "providers": [{"name": "simulated", "kind": "simulated"}],
            "routes": [
                {"model": model, "targets": [{"provider": "simulated"}]}
                for model in SIMULATED_MODELS
            ],
        }
        return cls._structured(tree, None, bind, workers)

    @classmethod
    def _structured(
        cls,
        tree: dict[str, Any],
        around: Surroundings | None,
        bind: Sequence[str],
        workers: int | None,
        *,
        lines: Mapping[str, int] | None = None,
        source: str = "",
        flags: Mapping[str, str] | None = None,
    ) -> "Settings":
        tree, server_flags = _with_server_flags(tree, bind, workers)
        try:
            settings = structure(tree, cls, around or Surroundings.of_process())
            _refuse_shared_secrets(settings)
        except SettingsError as error:
            all_flags = {**(flags or {}), **server_flags}
            placed = [_placed(each, lines or {}, all_flags) for each in error.complaints]
            placed.sort(key=lambda complaint: complaint.line or 0)
            raise SettingsError(placed, source=source) from None
        return settings


def _refuse_shared_secrets(settings: Settings) -> None:
    """Two keys with one value could not be told apart; ``structure`` sees their sources alone."""
    owners: dict[str, str] = {}
    complaints: list[Complaint] = []
    for index, key in enumerate(settings.keys):
        if key.key.value in owners:
            complaints.append(
                Complaint(f"keys[{index}].key", f"is the same secret as {owners[key.key.value]}'s")
            )
        owners.setdefault(key.key.value, key.name)
    if complaints:
        raise SettingsError(complaints)


def _unreadable(path: Path, why: str) -> SettingsError:
    return SettingsError([Complaint("", why)], source=str(path))


def _with_v1(url: str) -> str:
    try:
        has_path = urlsplit(url).path not in ("", "/")
    except ValueError:
        return url
    return url if has_path else f"{url.rstrip('/')}/v1"


def _with_server_flags(
    tree: dict[str, Any], bind: Sequence[str], workers: int | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The tree with the command line laid over ``[server]``, and which places are now flags."""
    server = tree.get("server", {})
    if not isinstance(server, dict):
        return tree, {}
    changes: dict[str, Any] = {}
    flags: dict[str, str] = {}
    if bind:
        changes["bind"] = list(bind)
        flags |= {f"server.bind[{index}]": "--bind" for index in range(len(bind))}
    if workers is not None:
        changes["workers"] = workers
        flags["server.workers"] = "--workers"
    return {**tree, "server": {**server, **changes}}, flags


def _placed(complaint: Complaint, lines: Mapping[str, int], flags: Mapping[str, str]) -> Complaint:
    if complaint.place in flags:
        return Complaint(flags[complaint.place], complaint.message)
    return Complaint(complaint.place, complaint.message, line_of(complaint.place, lines))
