"""``python -m ombus.cli``: the same command line."""

from ombus.cli import main

main()
