"""The command line."""

from trunkline.cli.app import main

__all__ = ["main"]
