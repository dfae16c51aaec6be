"""The configuration: read once, strictly, into frozen values.

    TOML text ─▶ tomllib ─▶ structure.py: cattrs with strict hooks and checks ─▶ Settings
                              ├▶ cross_checks.py: what lies between keys
                              └▶ places.py: the line of each complaint

``sections.py`` shows every key. Only the composition root and the command line see this package;
every other class takes its own small limits value.
"""

from edge.settings.complaints import Complaint, SettingsError
from edge.settings.kinds import Address, Secret
from edge.settings.reload import for_reload
from edge.settings.root import SIMULATED_MODELS, Settings
from edge.settings.sections import (
    KeySettings,
    LimitsSettings,
    MirrorSettings,
    ProviderSettings,
    RouteSettings,
    ServerSettings,
    TargetSettings,
    TelemetrySettings,
)
from edge.settings.structure import Surroundings

__all__ = [
    "SIMULATED_MODELS",
    "Address",
    "Complaint",
    "KeySettings",
    "LimitsSettings",
    "MirrorSettings",
    "ProviderSettings",
    "RouteSettings",
    "Secret",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "Surroundings",
    "TargetSettings",
    "TelemetrySettings",
    "for_reload",
]
