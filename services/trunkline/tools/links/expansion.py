"""Fills `${NAME}` in the `mcpServers` file from our environment, so that it holds no secrets."""

import os
import re
from collections.abc import Mapping

from trunkline.errors import ToolServerUnavailableError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand(server: str, text: str) -> str:
    """Return a text with `${NAME}` and `${NAME:-otherwise}` filled in.

    Raises:
        ToolServerUnavailableError: the environment has no such variable.
    """

    def value(reference: re.Match[str]) -> str:
        name, otherwise = reference.groups()
        found = os.environ.get(name)
        # As in a shell, what `:-` gives stands in for an empty value too.
        if otherwise is not None:
            return found or otherwise
        if found is None:
            problem = f"its entry needs the environment variable {name}, which is not set"
            raise ToolServerUnavailableError(server, problem)
        return found

    return _REFERENCE.sub(value, text)


def expand_all(server: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Return texts by name, each filled in.

    Raises:
        ToolServerUnavailableError: as `expand`.
    """
    return {name: expand(server, text) for name, text in texts.items()}
