"""Python functions of workflows in tests."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def note(last: Mapping[str, Any], context: Mapping[str, Any]) -> None:
    """Add a line to the file `notes` in the folder WORKFLOW_FOLDER."""
    with (Path(os.environ["WORKFLOW_FOLDER"]) / "notes").open("a", encoding="utf-8") as file:
        file.write(f"{context['config']['line']}\n")


async def shout(last: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last text in capitals."""
    return {"shouted": last["text"].upper()}


def fail(last: Mapping[str, Any], context: Mapping[str, Any]) -> None:
    """Raise."""
    raise LookupError("no such thing")


def return_a_set(last: Mapping[str, Any], context: Mapping[str, Any]) -> object:
    """Return what is not JSON."""
    return {1, 2}


def is_long(last: Mapping[str, Any], context: Mapping[str, Any]) -> bool:
    """Return a condition's label as a bool."""
    return len(last["text"]) > 5


def split(last: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """Return the results of branches, joined in another way."""
    return " + ".join(last["text"].split("\n\n"))
