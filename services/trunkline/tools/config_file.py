"""Reads an `mcpServers` file, and describes its errors by file, line and reason."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ValidationError

from trunkline.errors import ConfigurationError
from trunkline.tools.json_lines import find_duplicate, find_line

logger = logging.getLogger(__name__)

_SERVERS: Final = "mcpServers"
_FORM: Final = f'it must be an object with an object "{_SERVERS}"'

# Keys of other MCP clients, which share the file. They mean nothing here.
_FOREIGN_KEYS: Final = frozenset(
    {
        "alwaysAllow", "alwaysLoad", "auth", "autoApprove", "description", "dev", "disabledTools",
        "enabled", "enabledTools", "envFile", "excludeTools", "gallery", "headersHelper",
        "iconPath", "includeTools", "initTimeout", "metadata", "name", "networkTimeout", "oauth",
        "sandbox", "sandboxEnabled", "source", "startup", "timeout", "tools", "transport",
        "transportType", "trust", "version",
    }
)  # fmt: skip
# How alike an unknown key and a key of ours are, from 0 to 1, for it to be a misspelling.
_LIKENESS: Final = 0.6

# Our words for errors of pydantic, by their type. Others are clear as they are.
_WORDS: Final[Mapping[str, str]] = {
    "dict_type": "it must be an object",
    "extra_forbidden": "unknown key",
    "list_type": "it must be a list",
    "missing": "it is missing",
    "model_type": "it must be an object",
    "string_type": "it must be a text",
}
# What pydantic adds to the location of an error in `AgentOverlay | Literal[False]`.
_UNION_STEPS: Final = frozenset({"AgentOverlay", "literal[False]"})


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """An `mcpServers` file: its text, and its entries by name."""

    path: Path
    text: str
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, with or without a byte order mark.

        Raises:
            ConfigurationError: it can't be read, is no JSON, has no servers, or a key twice.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
        try:
            text = content.decode("utf-8-sig")
            document = json.loads(text)
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ConfigurationError(f"{path}, line {line}", "not JSON in UTF-8") from error
        except json.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} at column {error.colno}"
            if not text.strip():
                problem = f"the file is empty; {_FORM}"
            raise ConfigurationError(f"{path}, line {error.lineno}", problem) from error
        except RecursionError as error:
            raise ConfigurationError(f"{path}, line 1", "not JSON: nested too deeply") from error
        entries = document.get(_SERVERS) if isinstance(document, dict) else None
        if not isinstance(entries, dict):
            keys = ", ".join(document) if isinstance(document, dict) else ""
            line = find_line(text, (_SERVERS,))
            problem = _FORM if not keys or _SERVERS in document else f"{_FORM}; it has: {keys}"
            raise ConfigurationError(f"{path}, line {line}", problem)
        file = cls(path, text, entries)
        if duplicate := find_duplicate(text):
            line, keys = duplicate[0], ".".join(duplicate[1])
            raise ConfigurationError(f"{path}, line {line}: {keys}", "the key is there twice")
        return file

    def error(self, keys: Sequence[str], problem: str) -> ConfigurationError:
        """Return the error of a value of `mcpServers`, with its line."""
        return ConfigurationError(self._describe_place(keys), problem)

    def check_keys(self, name: str, entry: object, *, known: Collection[str]) -> None:
        """Check the keys of an entry. One that no client is known to have is logged.

        Raises:
            ConfigurationError: a key is much like one of ours, so it is a misspelling.
        """
        if not isinstance(entry, dict):
            return
        ours = (*known, "disabled")
        for key in entry:
            if key in ours or key in _FOREIGN_KEYS:
                continue
            if likely := get_close_matches(key.lower(), ours, n=1, cutoff=_LIKENESS):
                raise self.error((name, key), f'unknown key; do you mean "{likely[0]}"?')
            place = self._describe_place((name, key))
            logger.warning("mcp_file.key_ignored", extra={"key": place})

    def _describe_place(self, keys: Sequence[str]) -> str:
        path = (_SERVERS, *keys)
        return f"{self.path}, line {find_line(self.text, path)}: {'.'.join(path)}"


def first_problem(error: ValidationError) -> tuple[list[str], str]:
    """Return the location and the text of the first validation error."""
    first = error.errors(include_url=False, include_input=False)[0]
    location = [str(step) for step in first["loc"] if step not in _UNION_STEPS]
    return location, _WORDS.get(first["type"], first["msg"])
