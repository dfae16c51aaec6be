"""What is wrong with a configuration: every fault with its place."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Complaint:
    """One fault.

    Attributes:
        place: path of the key, as ``providers[1].connect_timeout_s``, or the command line's option
            (``--bind``); empty for the whole file.
        message: what is wrong and what would be right; never holds a secret.
        line: line of the file, from 1, where it is known.
    """

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class SettingsError(Exception):
    """A configuration that cannot be used.

    Attributes:
        source: the file's name, or empty where there is none.
        complaints: all that is wrong, in the order of the file where it is known.
    """

    def __init__(self, complaints: Sequence[Complaint], *, source: str = "") -> None:
        self.complaints = tuple(complaints)
        self.source = source
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """One line a complaint, as ``edge.toml:12: server.bind[0]: must be …``."""
        return [f"{self._prefix(complaint)}{complaint}" for complaint in self.complaints]

    def _prefix(self, complaint: Complaint) -> str:
        if not self.source or complaint.place.startswith("--"):
            return ""
        line = f":{complaint.line}" if complaint.line else ""
        return f"{self.source}{line}: "
