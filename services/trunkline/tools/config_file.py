"""Reads an `mcpServers` file, and describes its errors by file, line and reason."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ValidationError

from trunkline.core.source_documents import Keys, SourceDocument, parse_document
from trunkline.errors import ConfigurationError

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
# The similarity, from 0 to 1, from which an unknown key is a misspelling of a key of ours.
_LIKENESS: Final = 0.6

# Our texts for errors of pydantic, by their type. The texts of other errors are clear.
_WORDS: Final[Mapping[str, str]] = {
    "dict_type": "it must be an object",
    "extra_forbidden": "unknown key",
    "list_type": "it must be a list",
    "missing": "it is missing",
    "model_type": "it must be an object",
    "string_type": "it must be a text",
}
# The steps that pydantic adds to the location of an error in `AgentOverlay | Literal[False]`.
_UNION_STEPS: Final = frozenset({"AgentOverlay", "literal[False]"})


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """An `mcpServers` file, and its entries by name."""

    path: Path
    _document: SourceDocument
    entries: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file, with or without a byte order mark.

        Raises:
            ConfigurationError: the file can't be read, is no JSON, has no servers, or has a key
                twice.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
        document = parse_document(content, str(path), is_json=True)
        if not content.strip():
            raise ConfigurationError(str(path), f"the file is empty; {_FORM}")
        for fault in document.faults:
            where = f": {fault.where}" if fault.where else ""
            raise ConfigurationError(f"{path}, line {fault.line}{where}", fault.problem)
        value = document.value
        entries = value.get(_SERVERS) if isinstance(value, dict) else None
        if not isinstance(entries, dict):
            keys = ", ".join(value) if isinstance(value, dict) else ""
            problem = _FORM if not keys or _SERVERS in value else f"{_FORM}; it has: {keys}"
            line = document.locate((_SERVERS,)).line
            raise ConfigurationError(f"{path}, line {line}", problem)
        return cls(path, document, entries)

    def error(self, keys: Keys, problem: str) -> ConfigurationError:
        """Return the error of a value of `mcpServers`, with its line."""
        return ConfigurationError(self._describe_place(keys), problem)

    def check_keys(self, name: str, entry: object, *, known: Collection[str]) -> None:
        """Check the keys of an entry. A key that no known client uses is logged.

        Raises:
            ConfigurationError: a key resembles a key of ours, so it is misspelled.
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

    def _describe_place(self, keys: Keys) -> str:
        path = (_SERVERS, *keys)
        line = self._document.locate(path).line
        return f"{self.path}, line {line}: {'.'.join(map(str, path))}"


def first_problem(error: ValidationError) -> tuple[Keys, str]:
    """Return the location and the text of the first validation error."""
    first = error.errors(include_url=False, include_input=False)[0]
    location = tuple(step for step in first["loc"] if step not in _UNION_STEPS)
    return location, _WORDS.get(first["type"], first["msg"])
