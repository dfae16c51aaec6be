"""The request that the README shows gets the answer that stands beside it."""

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


@pytest.fixture
def url() -> Iterator[str]:
    """Where ``edge serve``, started as the README does, says it listens."""
    command = [sys.executable, "-m", "edge", "serve", "--bind", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.search(r"http://\S+", line)
            assert found, line
            yield found[0]
        finally:
            process.terminate()
            process.stderr.read()
    assert process.returncode == 0


def shown_answer() -> dict[str, Any]:
    """The answer in the README, its ellipses replaced by null."""
    (block,) = re.findall(r"^```\nHTTP/1.1 200 OK\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    body = block[block.index("{") :]
    answer: dict[str, Any] = json.loads(body.replace(":…", ":null").replace("{…}", "null"))
    return answer


def test_the_request_of_the_readme_gets_the_answer_of_the_readme(url: str) -> None:
    (body,) = re.findall(r"^curl -i .* -d '\n(.*?)'$", README, re.MULTILINE | re.DOTALL)
    request = urllib.request.Request(  # noqa: S310  # an http address of our own
        f"{url}/v1/chat/completions",
        data=body.encode(),
        headers={"content-type": "application/json"},
    )

    with urllib.request.urlopen(request) as response:  # noqa: S310  # the same
        answer = json.load(response)
        attempts = response.headers["x-edge-attempts"]

    shown = shown_answer()
    assert attempts == "2"
    assert answer.keys() == shown.keys()
    message, shown_message = answer["choices"][0]["message"], shown["choices"][0]["message"]
    assert message["content"] is shown_message["content"] is None
    assert message["tool_calls"][0]["function"] == shown_message["tool_calls"][0]["function"]
    assert answer["choices"][0]["finish_reason"] == shown["choices"][0]["finish_reason"]


def test_the_readme_names_the_one_command_that_tests() -> None:
    ci = (Path(__file__).parent.parent / ".ci" / "run").read_text()

    assert "```sh\npython3 -m tests\n```" in README
    assert "exec python3 -m tests\n" in ci
