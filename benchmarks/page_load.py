"""What the page bears: ``python -m benchmarks.page_load [--rates 0 100 500] [--seconds 10]``.

A gateway with simulated models, so many short runs a second through it (streamed, five words, 16
connections), and ``/ui`` open in a headless Chromium, where a person presses *Hold* twice a second.
The columns: runs that were answered and runs that the page counted by a second after the end;
frames a second that the browser painted, and the longest times between two; tasks that kept the
page busy for more than 50 ms; from a press to its effect; rows, heap, and the CPU of the browser.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import trio

from benchmarks import processes
from benchmarks.processes import Server, pause

CLIENTS = 16
BODY = json.dumps(
    {
        "model": "sim-echo",
        "stream": True,
        "messages": [{"role": "user", "content": "a short run of words"}],
    }
).encode()
REQUEST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
WATCH = """() => {
  window.seen = {gaps: [], long: [], rows: 0};
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) seen.long.push(entry.duration);
  }).observe({entryTypes: ["longtask"]});
  let last = performance.now();
  const frame = () => {
    const now = performance.now();
    seen.gaps.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  setInterval(() => {
    seen.rows = Math.max(seen.rows, document.querySelectorAll("#runs tr").length);
  }, 100);
}"""
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
HEADS = (
    *("runs/s asked", "answered", "counted", "frames/s", "between two p50 ms", "p99", "max"),
    *("long tasks", "ms in all", "press p50 ms", "max", "rows", "heap MB", "browser CPU s"),
)


async def load(port: int, rate: float, seconds: float) -> int:
    """Ask so often, on few connections; returns how many answers came."""
    sender, receiver = trio.open_memory_channel[None](1_000_000)
    answered = 0

    async def client() -> None:
        nonlocal answered
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async for _ in receiver.clone():
            await stream.send_all(REQUEST)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += await stream.receive_some()
            answered += 1

    async with trio.open_nursery() as nursery:
        for _ in range(CLIENTS):
            nursery.start_soon(client)
        began, asked = trio.current_time(), 0
        while trio.current_time() < began + seconds:
            while asked < (trio.current_time() - began) * rate:
                sender.send_nowait(None)
                asked += 1
            await trio.sleep(0.005)
        nursery.cancel_scope.cancel()
    return answered


def cpu_s(profile: Path) -> float:
    """User and system time of the browser's processes."""
    found = subprocess.run(  # noqa: S603
        ["pgrep", "-f", str(profile)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    total = 0
    for pid in found.stdout.split():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / processes.TICK


def share(ordered: list[float], part: float) -> float:
    """The value that this part of the values does not exceed."""
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def press(page: Any) -> float:
    """Press *Hold* and let go; returns the seconds of the first."""
    began = time.monotonic()
    page.click("#hold")
    took = time.monotonic() - began
    page.click("#hold")
    return took


def measure(url: str, port: int, rate: float, seconds: float, folder: Path) -> str:
    from playwright.sync_api import sync_playwright

    profile = folder / f"profile-{rate:g}"
    with sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(profile),
            executable_path=os.environ.get("EDGE_CHROMIUM") or shutil.which("chromium"),
            args=FLAGS,
        )
        page = context.pages[0]
        page.goto(f"{url}/ui")
        page.get_by_text("Live", exact=True).wait_for()
        page.evaluate(WATCH)
        before, presses = cpu_s(profile), []
        command = [sys.executable, "-m", "benchmarks.page_load", "--load", str(port)]
        command += ["--rates", f"{rate:g}", "--seconds", f"{seconds:g}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as loading:  # noqa: S603
            while loading.poll() is None:
                presses.append(press(page))
                pause(0.45)
            assert loading.stdout is not None
            answered = int(loading.stdout.read())
        pause(1.0)
        cpu, seen = cpu_s(profile) - before, page.evaluate("window.seen")
        counted = page.inner_text("#counts").split(",")[1].split()[0]
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        context.close()
    gaps, presses_ms = sorted(seen["gaps"]), sorted(took * 1000 for took in presses)
    cells = [
        *(f"{rate:g}", str(answered), counted, f"{1000 * len(gaps) / sum(gaps):.0f}"),
        *(f"{share(gaps, 0.5):.0f}", f"{share(gaps, 0.99):.0f}", f"{gaps[-1]:.0f}"),
        *(str(len(seen["long"])), f"{sum(seen['long']):.0f}"),
        *(f"{share(presses_ms, 0.5):.0f}", f"{presses_ms[-1]:.0f}", str(seen["rows"])),
        *(f"{heap:.1f}", f"{cpu:.1f}"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=[0, 100, 500])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--load", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(trio.run(load, options.load, options.rates[0], options.seconds))
        return 0
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{' --- |' * len(HEADS)}")
    for rate in options.rates:
        with tempfile.TemporaryDirectory() as name:
            port = processes.free_port()
            command = [sys.executable, "-m", "edge", "serve", "--bind", f"127.0.0.1:{port}"]
            server = Server(command, Path(name) / "edge.log")
            try:
                server.wait_for_port(port)
                url = f"http://127.0.0.1:{port}"
                print(measure(url, port, rate, options.seconds, Path(name)), flush=True)
            finally:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
