"""Limits on what a server declares about its tools, and on the depth of JSON from it.

Agents decode every declaration, and some model providers' clients follow all references of a
schema, so a few lines of schema could become any amount of work and memory.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types

# Every level of JSON is three of a protobuf message, whose decoders accept 100.
_DEPTH_LIMIT = 28
_SERVER_LIMIT_NODES = 200_000
_TOOL_LIMIT_NODES = 20_000


def is_too_deep(value: object) -> bool:
    """Return whether JSON is nested too deeply for our messages."""
    level = [value]
    for _ in range(_DEPTH_LIMIT):
        below: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        level = below
    return True


class DeclarationLimits:
    """The limits of one listing of a server's tools."""

    def __init__(self) -> None:
        self._remaining = _SERVER_LIMIT_NODES

    def find_problem(self, tool: mcp_types.Tool) -> str:
        """Return why a tool is refused, or ""."""
        declared = [tool.input_schema, tool.output_schema, tool.meta]
        if is_too_deep(declared):
            return "its declaration is nested too deeply"
        if self._remaining <= 0:
            return "the server declares too much"
        counter = _NodeCounter(tool.input_schema, min(self._remaining, _TOOL_LIMIT_NODES))
        counter.count(declared, frozenset())
        self._remaining -= counter.nodes
        return "its schema is too large with its references followed" if counter.is_over else ""


class _NodeCounter:
    """Counts JSON with the references into a schema followed, up to a limit."""

    def __init__(self, root: Mapping[str, Any], limit: int) -> None:
        self._root = root
        self._limit = limit
        self.nodes = 0

    @property
    def is_over(self) -> bool:
        """True if there is more than the limit."""
        return self.nodes >= self._limit

    def count(self, value: object, followed: frozenset[str]) -> None:
        """Add a value. References in `followed` are those that it is inside of."""
        self.nodes += 1
        # A chain of many references is deeper than any stack.
        if len(followed) > _DEPTH_LIMIT:
            self.nodes = self._limit
        if self.is_over:
            return
        if isinstance(value, Mapping):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference not in followed:
                self.count(self._find(reference), followed | {reference})
            for item in value.values():
                self.count(item, followed)
        elif isinstance(value, list):
            for item in value:
                self.count(item, followed)

    def _find(self, reference: str) -> object:
        target: object = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        return target
