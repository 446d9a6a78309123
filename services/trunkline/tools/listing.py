"""Cleans lists of a server of which some members are wrong. It imports mcp: load it lazily.

The SDK refuses a whole list for one bad member. Here, each tool of a listing and each part of a
result is checked alone.
"""

from collections.abc import Mapping
from typing import Any, Final

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import CallToolResult
from mcp_types.methods import SERVER_RESULTS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from trunkline.core.printable import to_plain_line

LIST_TOOLS: Final = "tools/list"
CALL_TOOL: Final = "tools/call"
# Members without which a tool can't be called. A schema is used whole or not at all.
_REQUIRED: Final = frozenset({"name", "inputSchema"})
# Members whose own members are checked one by one.
_DIVISIBLE: Final = frozenset({"annotations"})
_SCHEMA_RULES: Final[Any] = SERVER_RESULTS[LIST_TOOLS, "2025-11-25"]
_SCHEMAS: Final = ("inputSchema", "outputSchema")
# The members of a result that only a cache needs.
_NO_CACHE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_WARNINGS: Final = 20
_TEXT_CHARS: Final = 200
NAME_CHARS: Final = 100
"""The longest name of a tool in the log and in lists, in characters."""


class ListingProblems:
    """The problems of one listing: tools and members that were left out, and the limit that cut it.

    Each problem is a line. After the first 20 problems, only their number is kept.
    """

    def __init__(self) -> None:
        self.cut = ""
        """The limit at which the list was cut, in a line, or "" for a whole list."""
        self._lines: list[str] = []
        self._more = 0

    def add(self, tool: str, problem: str) -> None:
        """Add a problem of a tool."""
        if len(self._lines) >= _WARNINGS:
            self._more += 1
            return
        text = f"{to_plain_line(tool, NAME_CHARS)}: {problem}"
        self._lines.append(to_plain_line(text, NAME_CHARS + _TEXT_CHARS))

    def refuse(self, tool: str, problem: str) -> None:
        """Add the reason why a tool is left out."""
        self.add(tool, f"the tool is left out: {problem}")

    def lines(self) -> tuple[str, ...]:
        """Return the problems in the order of the list."""
        more = f"{self._more} more problems" if self._more else ""
        return (*self._lines, *filter(None, (more, self.cut)))


class ListFilter:
    """Removes unusable parts from lists and results before the SDK reads them."""

    def __init__(self) -> None:
        self.version = ""
        """The protocol version of the session; "" before the handshake."""
        self._call_result: TypeAdapter[Any] | None = None
        self.problems = ListingProblems()
        """The problems of the current listing. Each listing sets its own."""

    def clean_content(self, result: dict[str, Any]) -> bool:
        """Replace the bad parts of a tool's result by notes; return whether there were any."""
        if self.version in MODERN_PROTOCOL_VERSIONS:
            # MCP 2026-07-28, results: a result without a type is complete. The SDK requires it.
            result.setdefault("resultType", "complete")
        parts = result.get("content")
        if not isinstance(parts, list) or self._is_result(result):
            return False
        kept = [
            part if self._is_result({"content": [part]}) else _note_part(number, part)
            for number, part in enumerate(parts, 1)
        ]
        result["content"] = kept
        return any(part is not old for part, old in zip(kept, parts, strict=True))

    def _is_result(self, result: Mapping[str, Any]) -> bool:
        """Return True if the SDK accepts the result of a call."""
        if self._call_result is None:
            model: Any = SERVER_RESULTS[CALL_TOOL, self.version]
            self._call_result = TypeAdapter(model)
        try:
            result = {"resultType": "complete", **result}
            self._call_result.validate_python(result, by_name=False)
            # For the newest version, the first check also accepts results without content.
            CallToolResult.model_validate(result, by_name=False)
        except ValidationError:
            return False
        return True

    def clean_tools(self, result: dict[str, Any]) -> None:
        """Remove bad tools and bad members of tools from a result, and record them.

        A result without a list is left to the SDK, which refuses it.
        """
        tools = result.get("tools")
        if not isinstance(tools, list):
            return
        model = SERVER_RESULTS.get((LIST_TOOLS, self.version))
        cursor = result.get("nextCursor")
        result.clear()
        result |= {"tools": [], **_NO_CACHE}
        if isinstance(cursor, str):
            result["nextCursor"] = cursor
        elif cursor is not None:
            self.problems.cut = "the list is cut: its nextCursor is not a string"
        for number, declared in enumerate(tools, 1):
            tool = self._clean_tool(model, declared, f"tool {number}")
            if tool is not None:
                result["tools"].append(tool)

    def _clean_tool(self, model: Any, declared: object, label: str) -> dict[str, Any] | None:  # noqa: ANN401  a class or a union of pydantic
        """Return the usable part of a tool, or None if the tool can't be called."""
        if not isinstance(declared, dict):
            self.problems.refuse(label, "it is not an object")
            return None
        tool = dict(declared)
        if isinstance(tool.get("name"), str):
            label = tool["name"]
        is_modern = self.version in MODERN_PROTOCOL_VERSIONS
        for key in _SCHEMAS if not is_modern else _SCHEMAS[:1]:
            if isinstance(tool.get(key), Mapping):
                tool[key] = _as_object_schema(tool[key])
        # Each round removes one member.
        for _ in range(len(tool) + len(_DIVISIBLE) * _WARNINGS):
            try:
                # Later versions of MCP don't describe the schema, which is JSON Schema in each.
                schema = {key: tool[key] for key in _REQUIRED if key in tool}
                _SCHEMA_RULES.model_validate({"tools": [schema]}, strict=True, by_name=False)
                # Strict: the text "true" in a hint does not make a tool harmless.
                model.model_validate({**_NO_CACHE, "tools": [tool]}, strict=True, by_name=False)
            except ValidationError as error:
                first = error.errors(include_input=False, include_url=False)[0]
            else:
                problem = is_modern and find_invalid_x_mcp_header(tool["inputSchema"])
                if problem:
                    self.problems.refuse(label, problem)
                    return None
                return tool
            path = [str(step) for step in first["loc"][2:]]
            problem = f"{'.'.join(path) or 'it'}: {_lower_first(first['msg'])}"
            if not path or path[0] in _REQUIRED or path[0] not in tool:
                self.problems.refuse(label, problem)
                return None
            self.problems.add(label, f"a member is left out: {problem}")
            _remove(tool, path)
        self.problems.refuse(label, "too many of its members are invalid")
        return None


def _note_part(number: int, part: object) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    about = f" of the type {to_plain_line(kind, NAME_CHARS)!r}" if isinstance(kind, str) else ""
    return {"type": "text", "text": f"[part {number}{about} is left out: it is no valid content]"}


def _as_object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with the type that MCP requires, where the schema allows it."""
    kind = schema.get("type", "object")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    return {**schema, "type": "object"} if is_object else dict(schema)


def _remove(tool: dict[str, Any], path: list[str]) -> None:
    member = tool[path[0]]
    if path[0] in _DIVISIBLE and isinstance(member, dict) and len(path) > 1 and path[1] in member:
        tool[path[0]] = {key: value for key, value in member.items() if key != path[1]}
    else:
        del tool[path[0]]


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
