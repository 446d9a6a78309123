"""Limits on the tools that a server declares.

Agents decode every declaration, and some model providers' clients follow all references of a
schema, so a few lines of schema could become any amount of work and memory.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import mcp_types

from trunkline.tools.json_limits import DEPTH_LIMIT, find_json_problem

_SERVER_LIMIT_NODES = 200_000
_TOOL_LIMIT_NODES = 20_000
_SERVER_LIMIT_CHARS = 2_000_000
_TOOL_LIMIT_CHARS = 250_000
_SERVER_LIMIT_PAGES = 1_000
_REFERENCE_LIMIT_CHARS = 1_000


class DeclarationLimits:
    """The limits of one listing of a server's tools."""

    def __init__(self) -> None:
        self._remaining_nodes = _SERVER_LIMIT_NODES
        self._remaining_chars = _SERVER_LIMIT_CHARS
        self._cursors: set[str] = set()

    def find_cut(self, cursor: str) -> str:
        """Return the reason why the list ends before a cursor, or ""."""
        if cursor in self._cursors:
            return "the list is cut: the server repeats a cursor"
        self._cursors.add(cursor)
        if len(self._cursors) >= _SERVER_LIMIT_PAGES:
            return f"the list is cut at {_SERVER_LIMIT_PAGES} pages"
        return ""

    def find_excess(self) -> str:
        """Return the reason why no further tool of the list is accepted, or ""."""
        if self._remaining_chars <= 0:
            return f"the list is cut at {_SERVER_LIMIT_CHARS} characters"
        if self._remaining_nodes <= 0:
            return f"the list is cut at {_SERVER_LIMIT_NODES} values"
        return ""

    def find_problem(self, tool: mcp_types.Tool) -> str:
        """Return the reason why a tool is refused, or ""."""
        title = tool.annotations and tool.annotations.title
        declared: list[object] = [tool.name, tool.title, title, tool.description]
        declared += [tool.input_schema, tool.output_schema, tool.meta]
        if problem := find_json_problem(declared, limit_values=_TOOL_LIMIT_NODES):
            self._remaining_nodes -= _TOOL_LIMIT_NODES
            return f"its declaration {problem}"
        chars = len(json.dumps(declared, ensure_ascii=False))
        self._remaining_chars -= min(chars, _TOOL_LIMIT_CHARS)
        if chars > _TOOL_LIMIT_CHARS:
            return f"its declaration has more than {_TOOL_LIMIT_CHARS} characters"
        limit = min(self._remaining_nodes, _TOOL_LIMIT_NODES)
        nodes = [_count_nodes(schema, limit) for schema in (tool.input_schema, tool.output_schema)]
        self._remaining_nodes -= sum(nodes)
        is_over = max(nodes) >= limit
        return "its schema is too large with its references followed" if is_over else ""


def _count_nodes(schema: Mapping[str, Any] | None, limit: int) -> int:
    """Return the size of a schema with its references followed, at most `limit`."""
    counter = _NodeCounter(schema, limit)
    try:
        counter.count(schema, frozenset())
    except RecursionError:
        return limit
    return min(counter.nodes, limit)


class _NodeCounter:
    """Counts JSON with the references into a schema followed, up to a limit."""

    def __init__(self, root: object, limit: int) -> None:
        self.nodes = 0
        self._root = root
        self._limit = limit
        self._targets: dict[str, list[object]] = {}

    def count(self, value: object, followed: frozenset[str]) -> None:
        """Count a value. `followed` are the references that lead to it."""
        self.nodes += 1
        # A chain of many references is deeper than any stack.
        if len(followed) > DEPTH_LIMIT:
            self.nodes = self._limit
        if self.nodes >= self._limit:
            return
        if isinstance(value, Mapping):
            self._count_targets(value.get("$ref"), followed)
            for item in value.values():
                self.count(item, followed)
        elif isinstance(value, list):
            for item in value:
                self.count(item, followed)

    def _count_targets(self, reference: object, followed: frozenset[str]) -> None:
        if not isinstance(reference, str) or reference in followed:
            return
        if len(reference) > _REFERENCE_LIMIT_CHARS:
            self.nodes = self._limit
            return
        if reference not in self._targets:
            self._targets[reference] = self._resolve(reference)
        for target in self._targets[reference]:
            self.count(target, followed | {reference})

    def _resolve(self, reference: str) -> list[object]:
        """Return all values that a library may take for the target of a reference.

        LangChain takes the names in it literally; RFC 6901 decodes them.
        """
        literal = reference.split("/")
        decoded = [
            step.replace("~1", "/").replace("~0", "~") for step in unquote(reference).split("/")
        ]
        readings = [literal] if literal == decoded else [literal, decoded]
        return [_follow(self._root, steps[1:]) for steps in readings if steps[0] == "#"]


def _follow(root: object, steps: Sequence[str]) -> object:
    """Return the value at a path, or None."""
    target = root
    for step in steps:
        if isinstance(target, Mapping):
            target = target.get(step)
        elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        else:
            return None
    return target
