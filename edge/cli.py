"""The commands: ``edge serve``, ``edge check``, ``edge ledger``, ``edge tail``, and others.

Nothing is built or opened here. A command reads its settings, tells every complaint on stderr and
ends with status 1 where there is one, and only then hands over to the composition root.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from edge import __version__
from edge.settings import Settings, SettingsError

CONFIG_FILE = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """An OpenAI-compatible gateway whose answers are right and where nothing runs for nobody."""


@cli.command()
@click.option("--config", type=CONFIG_FILE, help="TOML file; see docs/configuration.md.")
@click.option(
    "--bind", multiple=True, metavar="HOST:PORT", help="Where to listen, in place of server.bind."
)
@click.option("--upstream", metavar="URL", help="Serve one model server, without a file.")
@click.option("--api-key-env", metavar="NAME", help="Variable that holds the upstream's key.")
@click.option("--workers", type=int, metavar="N", help="Processes, in place of server.workers.")
def serve(
    config: Path | None,
    bind: tuple[str, ...],
    upstream: str | None,
    api_key_env: str | None,
    workers: int | None,
) -> None:
    """Serve until a signal comes.

    Without --config and --upstream the built-in simulated models are served: sim-echo, sim-tools
    and sim-slow.
    """
    if config and upstream:
        raise click.UsageError("--config and --upstream exclude each other")
    if api_key_env and not upstream:
        raise click.UsageError("--api-key-env goes with --upstream")

    def read() -> Settings:
        if config:
            return Settings.from_file(config, bind=bind, workers=workers)
        if upstream:
            return Settings.from_upstream(upstream, api_key_env or "", bind=bind, workers=workers)
        return Settings.simulated(bind=bind, workers=workers)

    settings = _settings_or_exit(read)
    # Here and not above: checking a file or printing the version should not load the server.
    from edge import process

    sys.exit(process.serve(settings, read))


@cli.command(hidden=True)
@click.argument("descriptor", type=int)
def worker(descriptor: int) -> None:
    """Serve as a worker of the supervisor at the other end of a socket."""
    from edge import process

    sys.exit(process.work(descriptor))


@cli.command()
@click.argument("file", type=CONFIG_FILE)
def check(file: Path) -> None:
    """Check a configuration FILE: every complaint with its place, exit status 1 if there is any."""
    settings = _settings_or_exit(lambda: Settings.from_file(file))
    providers = ", ".join(provider.name for provider in settings.providers)
    models = ", ".join(route.model for route in settings.routes)
    keys = ", ".join(key.name for key in settings.keys) or "none"
    click.echo(f"{file}: sound; providers: {providers}; models: {models}; keys: {keys}")


@cli.command()
@click.argument("file", type=CONFIG_FILE, required=False)
@click.option("--config", type=CONFIG_FILE, help="Take the ledger that this file configures.")
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(["key", "model", "route", "provider", "day", "status"]),
    default=["model"],
    show_default=True,
    help="Group by this; may be given more than once.",
)
@click.option(
    "--since", metavar="WHEN", help="Leave out what is older: 24h, 7d, or a date or time (UTC)."
)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table")
def ledger(
    file: Path | None, config: Path | None, by: tuple[str, ...], since: str | None, form: str
) -> None:
    """Sum up a ledger FILE: runs, attempts, tokens and times."""
    if (file is None) == (config is None):
        raise click.UsageError("name the ledger's FILE, or the configuration that does: --config")
    from edge.telemetry import ledger_report, ledger_table

    if file is None:
        file = _settings_or_exit(lambda: Settings.from_file(config or "")).telemetry.ledger
    if file is None:
        raise click.UsageError(f"{config} configures no ledger (telemetry.ledger)")
    try:
        start = ledger_report.moment(since, now=time.time()) if since else 0.0
    except ValueError:
        raise click.BadParameter("is no span (24h, 7d) and no date", param_hint="--since") from None
    try:
        found = ledger_report.report(file, by=list(dict.fromkeys(by)), since=start)
    except sqlite3.Error as error:
        click.echo(ledger_report.unreadable(file, error), err=True)
        sys.exit(1)
    if form == "table":
        ledger_table.show(found, groups=len(set(by)))
    else:
        text = ledger_report.as_csv(found) if form == "csv" else ledger_report.as_json(found)
        click.echo(text.rstrip("\n"))


@cli.command()
@click.argument("run_id", required=False)
@click.option(
    "--url", metavar="URL", default="http://127.0.0.1:8080", show_default=True, help="The gateway."
)
@click.option("--key-env", metavar="NAME", help="Variable that holds a client key.")
@click.option("--json", "as_json", is_flag=True, help="Print the frames as they come, one a line.")
@click.option("--record", type=CONFIG_FILE, metavar="FILE", help="Write the frames into a file.")
def tail(
    run_id: str | None, url: str, key_env: str | None, as_json: bool, record: Path | None
) -> None:
    """Follow all runs of a gateway, or the text of one, RUN_ID, to its end."""
    from edge import tail as following

    if key_env and not os.environ.get(key_env):
        raise click.BadParameter(f"the variable {key_env} is not set", param_hint="--key-env")
    target = following.Target(url=url, run_id=run_id, key=os.environ.get(key_env or "", ""))
    try:
        _ = target.parts
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None
    sys.exit(following.tail_or_tell(target, as_json=as_json, record=record))


@cli.command()
@click.argument("file", type=CONFIG_FILE)
@click.option("--request", type=CONFIG_FILE, help="The client's body, in place of the recorded.")
@click.option("--run", "run_id", default="", help="Only this run of a recording of many.")
@click.option("--output", default="", help='As x-edge-output: "repair=false; strict=true".')
@click.option("--json", "as_json", is_flag=True, help="Print the decisions as JSON, one a line.")
def replay(file: Path, request: Path | None, run_id: str, output: str, as_json: bool) -> None:
    """Read and judge the recorded answers in FILE again, and print each decision."""
    from edge import replay as replaying

    status = replaying.replay_or_tell(
        file, request=request, output=output, as_json=as_json, run_id=run_id
    )
    sys.exit(status)


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"edge {__version__}")


def _settings_or_exit(read: Callable[[], Settings]) -> Settings:
    try:
        return read()
    except SettingsError as error:
        for line in error.lines():
            click.echo(line, err=True)
        sys.exit(1)
