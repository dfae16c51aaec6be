"""How often a target's tool calls turn out sound, measured as it answers.

An exponentially weighted mean over the answers whose calls were judged:

    validity += 0.1 * (x - validity)        x = 1 for sound calls, 0 for unsound ones

It starts at 1. A target that is hardly asked any more could never win back its name, so what is
held against it fades, by half every 300 s:

    validity(now) = 1 - (1 - validity) * 2 ** (-age / 300)

The penalty that ranking applies is ``1 / max(validity, 0.05) ** 2``: 1 for a faultless target, 4
where every second answer is wrong, at most 400.
"""

from edge.core.attempt import AttemptOutcome

_WEIGHT = 0.1
"""Of the newest answer: the mean remembers about the last ten."""

_HALF_LIFE_S = 300.0
_WORST = 0.05


class CallValidity:
    """The measured validity of one target's tool calls, between 0 and 1."""

    __slots__ = ("_at", "_value", "judged")

    def __init__(self) -> None:
        self._value = 1.0
        self._at = 0.0
        self.judged = 0
        """Answers judged so far."""

    def note(self, outcome: AttemptOutcome, now: float) -> None:
        """Take the outcome into account, if it says anything about calls."""
        if outcome.blames_calls:
            sound = 0.0
        elif outcome.status == "success" and outcome.made_calls:
            sound = 1.0
        else:
            return
        value = self.value(now)
        self._value = value + _WEIGHT * (sound - value)
        self._at = now
        self.judged += 1

    def value(self, now: float) -> float:
        """The validity as of ``now``."""
        if self._value == 1.0:
            return 1.0
        age_s = max(now - self._at, 0.0)
        faded: float = 2.0 ** (-age_s / _HALF_LIFE_S)
        return 1.0 - (1.0 - self._value) * faded

    def penalty(self, now: float) -> float:
        """The factor, at least 1, on the target's score."""
        return 1.0 / max(self.value(now), _WORST) ** 2
