"""How many tool calls keep their schema: a real model asked bare, and through the gateway.

    python -m benchmarks.tool_validity --server http://127.0.0.1:18080/v1

Forty requests over five tools (``tool_prompts``), each with ``tool_choice: "required"``, one after
the other, to the server itself and to a gateway that is started in front of it. A call is counted
as valid when it names an offered tool and its arguments are a JSON object that keeps that tool's
schema; a request when it has at least one call, and all its calls are valid. The judge is
jsonschema-rs, apart from the gateway's own code. What the gateway refuses by a typed error is told
apart from a broken call that reached the client: there must be none of the latter.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import jsonschema_rs

from benchmarks.processes import Server, free_port
from benchmarks.tool_prompts import PROMPTS, TOOLS

SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
CONFIG = """\
[server]
bind = ["127.0.0.1:{port}"]

[[providers]]
name = "model"
kind = "openai"
base_url = "{server}"
path = "normalized"
first_token_timeout_s = 600
idle_timeout_s = 600

[[routes]]
model = "*"
targets = [{{ provider = "model" }}]

[output]
buffer = "full"
validate = "enforce"
max_attempts = {attempts}
feedback = {feedback}
constrain_last_attempt = {constrain}
run_timeout_s = 1800
"""


def verdict(status: int, answer: dict[str, Any]) -> str:
    """``valid``, ``no call``, ``invalid call``, or the type of the error."""
    if status != 200:
        return str(answer["error"]["type"])
    calls = answer["choices"][0]["message"].get("tool_calls") or []
    if not calls:
        return "no call"
    return "valid" if all(map(_sound, calls)) else "invalid call"


def _sound(call: dict[str, Any]) -> bool:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        return False
    schema = SCHEMAS.get(function["name"])
    return schema is not None and jsonschema_rs.is_valid(schema, arguments)


def ask(base_url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
    """One request; the status, the body and how many attempts the gateway says it took."""
    request = Request(  # noqa: S310 - the tester's own server
        f"{base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urlopen(request, timeout=1800) as response:  # noqa: S310
            attempts = response.headers.get("x-edge-attempts", "-")
            return response.status, json.load(response), attempts
    except HTTPError as error:
        return error.code, json.load(error), error.headers.get("x-edge-attempts", "-")


def run(name: str, base_url: str, options: argparse.Namespace) -> dict[str, Any]:
    """All prompts against one address."""
    verdicts: list[str] = []
    attempts: list[str] = []
    begin = time.monotonic()
    for number, prompt in enumerate(PROMPTS[: options.prompts]):
        body = {
            "model": options.model,
            "messages": [{"role": "user", "content": prompt}],
            "tools": TOOLS,
            "tool_choice": options.tool_choice,
            "temperature": options.temperature,
            "seed": number,
            "max_tokens": options.max_tokens,
        }
        status, answer, took = ask(base_url, body)
        verdicts.append(verdict(status, answer))
        attempts.append(took)
        if options.verbose:
            shown = answer["choices"][0]["message"] if status == 200 else answer["error"]
            print(f"# {name} {number}: {verdicts[-1]} ({took}) {shown}", file=sys.stderr)
    return {
        "name": name,
        "asked": len(verdicts),
        "verdicts": dict(Counter(verdicts)),
        "attempts": dict(Counter(attempts)),
        "seconds_each": (time.monotonic() - begin) / len(verdicts),
    }


@contextmanager
def gateway(options: argparse.Namespace, *, feedback: bool, constrain: bool) -> Iterator[str]:
    """The gateway in front of the server; its base URL."""
    port = free_port()
    config = CONFIG.format(
        port=port,
        server=options.server,
        attempts=options.attempts,
        feedback=str(feedback).lower(),
        constrain=str(constrain).lower(),
    )
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as folder:
        path = Path(folder, "edge.toml")
        path.write_text(config)
        command = [sys.executable, "-m", "edge", "serve", "--config", str(path)]
        server = Server(command, Path(folder, "log"))
        try:
            server.wait_for_port(port)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.stop()


def render(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| asked | schema-valid | no call | invalid call | refused by a typed error "
        "| attempts: requests | seconds a request |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        seen = Counter(row["verdicts"])
        told = sum(n for kind, n in seen.items() if kind.endswith("error"))
        attempts = ", ".join(f"{k}: {n}" for k, n in sorted(row["attempts"].items()))
        lines.append(
            f"| {row['name']} | {seen['valid']}/{row['asked']} | {seen['no call']} "
            f"| {seen['invalid call']} | {told} | {attempts} | {row['seconds_each']:.1f} |"
        )
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="base URL of the model server, with /v1")
    parser.add_argument("--model", default="default")
    parser.add_argument("--attempts", type=int, default=3, help="budget of a run")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--tool-choice", default="required", choices=["auto", "required"])
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--bare-only", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="every answer, on stderr")
    return parser.parse_args()


def main() -> None:
    options = parse()
    rows = [run("the server, bare", options.server, options)]
    if not options.bare_only:
        with gateway(options, feedback=True, constrain=False) as url:
            rows.append(run("through edge, feedback alone", url, options))
        with gateway(options, feedback=True, constrain=True) as url:
            rows.append(run("through edge, last attempt constrained", url, options))
    print(render(rows))
    print(
        f"\n{options.attempts} attempts, temperature {options.temperature}, seed = the prompt's "
        f"number, at most {options.max_tokens} tokens, tool_choice {options.tool_choice}"
    )


if __name__ == "__main__":
    main()
