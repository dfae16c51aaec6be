"""Which of several targets with a free slot is taken."""

from collections.abc import Sequence

from edge.core.fleet import RoutePolicy
from edge.core.pool_member import Candidate


def choose(
    policy: RoutePolicy, candidates: Sequence[Candidate], *, now: float, pick: float
) -> Candidate:
    """One of ``candidates`` (at least one, in the route's order).

    ``pick``, a random number in [0, 1), is used by ``weighted`` alone.
    """
    if policy == "ordered" or len(candidates) == 1:
        return candidates[0]
    if policy == "weighted":
        return _draw(candidates, pick)
    return min(candidates, key=lambda each: (each.score(now), each.last_taken))


def _draw(candidates: Sequence[Candidate], pick: float) -> Candidate:
    total = sum(each.target.weight for each in candidates)
    mark = pick * total
    for each in candidates:
        mark -= each.target.weight
        if mark < 0:
            return each
    # All weights are 0, or the sum was rounded: stand-ins take over in order.
    return candidates[0] if not total else candidates[-1]
