"""Lines of the audit log and of the log of a mesh, as commands read and print them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trunkline.core.printable import escape_json_controls
from trunkline.errors import ConfigurationError


@contextmanager
def report_unreadable(path: Path) -> Iterator[None]:
    """Convert the errors of a block that reads a file.

    Raises:
        ConfigurationError: the file can't be read.
    """
    try:
        yield
    except BrokenPipeError:
        # The reader of the output, such as `head`, has left.
        raise
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error


def print_entry(
    entry: Mapping[str, Any], render: Callable[[Mapping[str, Any]], str], *, as_json: bool
) -> None:
    """Print an entry: as text that `render` makes, or as one JSON object."""
    text = escape_json_controls(json.dumps(entry, ensure_ascii=False)) if as_json else render(entry)
    print(f"{text}\n", end="", flush=True)
