"""The tools of one turn, under names that every model provider accepts."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from trunkline.core.json_values import struct_json
from trunkline.v1 import tool_service_pb2

_NAME_CHARS = 64
ToolSpec = dict[str, Any]
"""A tool in the form that chat models of all providers take."""


def build_tool_spec(name: str, description: str, parameters: Mapping[str, Any]) -> ToolSpec:
    """Build the spec of a tool. `parameters` is the JSON Schema of its arguments."""
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Build the JSON Schema of an object that requires all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


class Toolbox:
    """Tools by the name that the model uses."""

    def __init__(self, tools: Sequence[tool_service_pb2.Tool]) -> None:
        self._tools: dict[str, tool_service_pb2.Tool] = {}
        for tool in tools:
            self._tools[self._choose_name(tool)] = tool

    def find(self, name: str) -> tool_service_pb2.Tool | None:
        """Return the tool with this model name, or None."""
        return self._tools.get(name)

    def specs(self, *, with_metadata: bool) -> list[ToolSpec]:
        """Return the specs for a model. Only built-in models take `metadata`."""
        return [self._build_spec(name, with_metadata=with_metadata) for name in self._tools]

    def _build_spec(self, name: str, *, with_metadata: bool) -> ToolSpec:
        schema, metadata = _decode_tool(self._tools[name].SerializeToString(deterministic=True))
        tool = self._tools[name]
        empty = {"type": "object", "properties": {}}
        spec = build_tool_spec(name, tool.description or tool.title, schema or empty)
        if with_metadata:
            spec["metadata"] = metadata
        return spec

    def _choose_name(self, tool: tool_service_pb2.Tool) -> str:
        """Return an unused name of letters, digits, `_` and `-`, which all providers accept."""
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", f"{tool.server}__{tool.name}")[:_NAME_CHARS]
        name, number = plain, 2
        while name in self._tools:
            ending = f"_{number}"
            name, number = plain[: _NAME_CHARS - len(ending)] + ending, number + 1
        return name


@lru_cache(maxsize=512)
def _decode_tool(tool: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a tool's schema and metadata as JSON. Cached, because each reply needs them."""
    message = tool_service_pb2.Tool.FromString(tool)
    metadata = struct_json(message.metadata)
    metadata |= {"title": message.title or message.name}
    return struct_json(message.input_schema), metadata
