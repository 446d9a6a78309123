"""The command line."""

from trunkline.cli.entry import main

__all__ = ["main"]
