"""Restricts the types that checkpoints restore. Imports LangGraph, so load it lazily.

LangGraph's serializer imports any module that a checkpoint names and calls what it names there. A
data directory may come from somebody else, so only data types that the code declares are made.
"""

from collections.abc import Iterable
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, Final, get_args, get_type_hints, is_typeddict

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from pydantic import BaseModel

# The formats that LangGraph writes. Others, which it reads, make more kinds of objects.
_FORMATS: Final = frozenset({"msgpack", "bytes", "bytearray", "null"})


class CheckpointSerializer(JsonPlusSerializer):
    """Restores messages, the types of LangGraph's allow-list, and types that are added to it.

    The data of other objects is restored as dictionaries, lists and plain values.
    """

    def __init__(self) -> None:
        # None stands for LangGraph's allow-list. The default allows everything.
        super().__init__(allowed_msgpack_modules=None)

    @classmethod
    def for_types(cls, types: Iterable[type]) -> JsonPlusSerializer:
        """Return a serializer that also restores objects of these types."""
        names = [(kind.__module__, kind.__name__) for kind in types]
        return cls().with_msgpack_allowlist(names) if names else cls()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401  as LangGraph's
        """Restore a value.

        Raises:
            ValueError: it is in a format that is never written.
        """
        if data[0] not in _FORMATS:
            raise ValueError(f"its format is {data[0]}")
        return super().loads_typed(data)


def find_graph_types(graph: Pregel[Any, Any, Any, Any]) -> set[type]:
    """Return the data types that a graph and its subgraphs declare for their state."""
    annotations: list[object] = []
    subgraphs = (subgraph for _, subgraph in graph.get_subgraphs(recurse=True))
    for member in (graph, *subgraphs):
        if not isinstance(member, Pregel):
            continue
        for channel in member.channels.values():
            annotations += [
                getattr(channel, "ValueType", None),
                getattr(channel, "UpdateType", None),
            ]
        if isinstance(member, CompiledStateGraph):
            annotations += [node.input_schema for node in member.builder.nodes.values()]
    return find_data_types(annotations)


def find_data_types(annotations: Iterable[object]) -> set[type]:
    """Return the data types in annotations and in the fields of these types."""
    types: set[type] = set()
    pending = list(annotations)
    while pending:
        annotation = pending.pop()
        # Of a union or a container, and of a `NewType`.
        pending += get_args(annotation)
        if hasattr(annotation, "__supertype__"):
            pending.append(annotation.__supertype__)
        if isinstance(annotation, type) and _is_data(annotation) and annotation not in types:
            types.add(annotation)
            pending += _field_types(annotation)
    return types


def _is_data(kind: type) -> bool:
    return (
        is_dataclass(kind)
        or is_typeddict(kind)
        or issubclass(kind, (BaseModel, Enum))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _field_types(kind: type) -> list[object]:
    try:
        return list(get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError):
        # The annotations name types that exist only for type checkers.
        return []
