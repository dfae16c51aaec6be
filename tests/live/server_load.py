"""How many requests a model server is working on, by what it tells of itself.

llama.cpp has ``/slots`` and, started with ``--metrics``, ``/metrics``; vLLM and SGLang have the
latter. A server that tells neither cannot be judged.
"""

import json
import re
from urllib.error import HTTPError
from urllib.request import urlopen

GAUGES = re.compile(
    r"^(?:llamacpp:requests_processing|vllm:num_requests_running(?:\{.*\})?"
    r"|sglang:num_running_reqs(?:\{.*\})?) (\S+)$",
    re.MULTILINE,
)


def requests_in_work(server_url: str) -> int | None:
    """Requests that are being processed now; None where the server does not tell."""
    root = server_url.removesuffix("/v1")
    slots = _get(f"{root}/slots")
    if slots is not None:
        return sum(bool(slot["is_processing"]) for slot in json.loads(slots))
    values = GAUGES.findall(_get(f"{root}/metrics") or "")
    return int(sum(map(float, values))) if values else None


def _get(url: str) -> str | None:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 - the address is the tester's own
            return str(answer.read().decode())
    except HTTPError:
        return None
