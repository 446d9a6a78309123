"""Accounts of callers, shared by the bridge, the tasks and the command line."""

from typing import Final

ANONYMOUS_ACCOUNT: Final = "anonymous"
"""The account that owns the tasks of callers without credentials."""
