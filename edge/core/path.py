"""Which way a chat run's answers travel: decoded and written anew, or as the bytes they are.

A tunnel carries what nobody here has to look at. So a run may use one only if nothing of its
answer is judged, held back or rewritten, and it does use one where that leaves it no fewer targets
to turn to than the other path would. One path is chosen for the whole run: what has begun as bytes
cannot go on as events.
"""

from edge.core.output_policy import OutputPolicy


def may_tunnel(policy: OutputPolicy, *, offers_tools: bool) -> bool:
    """Whether a chat run of this policy can do without its answer being decoded.

    Args:
        policy: the run's, with its overrides.
        offers_tools: whether the request offers tools; reading calls out of text is only then due.
    """
    return (
        policy.validate == "off"
        and policy.buffer == "off"
        and not policy.xml_completion_tool
        and not (policy.recover and offers_tools)
        and not policy.trace  # a trace tells of pieces, and a tunnel knows none
    )


def prefers_tunnel(*, normalized: int, tunnels: int) -> bool:
    """Whether a run that may use either path takes the tunnel.

    Args:
        normalized: how many of its route's targets may have their answers decoded.
        tunnels: how many may have them passed through.
    """
    return tunnels > 0 and tunnels >= normalized
