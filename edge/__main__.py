"""``python -m edge``, the same as the command ``edge``."""

from edge.cli import cli


def main() -> None:
    """Run the command line."""
    cli(prog_name="edge")


if __name__ == "__main__":
    main()
