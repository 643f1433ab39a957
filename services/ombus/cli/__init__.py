"""The command line ``ombus``. Nothing heavy is imported before a command needs it."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the installed script."""
    try:
        from ombus.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("ombus: the command line needs two extras: pip install 'ombus[embedded,cli]'")
    app()
