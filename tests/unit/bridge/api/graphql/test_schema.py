"""The resolvers fit the schema, which is declared in a file of its own."""

import asyncio
import inspect
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from graphql import GraphQLError, GraphQLObjectType, GraphQLScalarType, print_ast

from trunkline.core.settings import GraphQLSettings, LimitSettings
from trunkline_bridge.api.graphql.context import (
    DEFAULT_PAGE_SIZE,
    MeshAccess,
    OperationContext,
)
from trunkline_bridge.api.graphql.messages import MessageNode
from trunkline_bridge.api.graphql.rooms import RoomNode
from trunkline_bridge.api.graphql.runs import RunNode
from trunkline_bridge.api.graphql.schema import ROOTS, MeshSchema
from trunkline_bridge.api.graphql.workflows import WorkflowVersionNode
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.request_rates import RequestRates

SCHEMA = MeshSchema(GraphQLSettings()).declared
ROOT_CLASSES = {
    root.name: type(ROOTS[operation])
    for operation in ROOTS
    if (root := SCHEMA.get_root_type(operation)) is not None
}
CLASSES: dict[str, type] = {
    **ROOT_CLASSES,
    "Message": MessageNode,
    "Room": RoomNode,
    "Workflow": WorkflowVersionNode,
    "WorkflowRun": RunNode,
}


def to_python(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("name", CLASSES)
def test_each_field_with_arguments_has_a_resolver_that_takes_them(name: str) -> None:
    declared = SCHEMA.type_map[name]
    assert isinstance(declared, GraphQLObjectType)
    for label, field in declared.fields.items():
        if field.args or name in ROOT_CLASSES:
            resolver = getattr(CLASSES[name], to_python(label))
            parameters = list(inspect.signature(resolver).parameters)
            assert parameters == ["self", "context", *map(to_python, field.args)], label


@pytest.mark.parametrize("name", CLASSES)
def test_each_resolver_is_a_field_of_the_schema(name: str) -> None:
    declared = SCHEMA.type_map[name]
    assert isinstance(declared, GraphQLObjectType)
    fields = set(map(to_python, declared.fields))
    resolvers = {
        member
        for member, value in inspect.getmembers(CLASSES[name], inspect.isfunction)
        if not member.startswith("_") and "context" in inspect.signature(value).parameters
    }
    assert resolvers <= fields


def test_pages_have_the_size_by_which_their_cost_is_counted() -> None:
    sizes = {
        print_ast(default.literal)
        for kind in SCHEMA.type_map.values()
        if isinstance(kind, GraphQLObjectType)
        for field in kind.fields.values()
        if "first" in field.args and (default := field.args["first"].default) is not None
        if default.literal is not None
    }
    assert sizes == {str(DEFAULT_PAGE_SIZE)}


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-05-01T08:00:00", "2026-05-01T08:00:00Z"),
        ("2026-05-01T08:00:00+02:00", "2026-05-01T08:00:00+02:00"),
        ("2026-05", "2026-05-01T00:00:00Z"),
        ("2026", "2026-01-01T00:00:00Z"),
    ],
)
def test_a_time_is_read_in_the_form_of_the_contract(text: str, time: str) -> None:
    times = SCHEMA.type_map["DateTime"]
    assert isinstance(times, GraphQLScalarType)
    assert times.coerce_input_value(text) == time
    for wrong in ("soon", 3, None):
        with pytest.raises(GraphQLError, match="DateTime"):
            times.coerce_input_value(wrong)


class WatchedMessages:
    """The operations on messages, with an endless stream of positions."""

    def __init__(self) -> None:
        self.closed_by: list[asyncio.Task[Any] | None] = []
        """The tasks that closed a stream."""

    @asynccontextmanager
    async def watch(self, *_: object, **__: object) -> AsyncIterator[AsyncIterator[list[Any]]]:
        """Open the stream."""

        async def read() -> AsyncIterator[list[Any]]:
            for position in itertools.count(1):
                yield [SimpleNamespace(envelopes=(), position=position)]

        try:
            yield read()
        finally:
            await asyncio.sleep(0)
            self.closed_by.append(asyncio.current_task())


async def test_a_stream_that_is_left_closes_its_source_at_once() -> None:
    messages: Any = WatchedMessages()
    settings = GraphQLSettings()
    rates = RequestRates(LimitSettings())
    access = MeshAccess(messages, SimpleNamespace(), rates, settings)  # type: ignore[arg-type]
    results = await MeshSchema(settings).stream(
        "subscription { messages { cursor } }",
        context_value=OperationContext(Caller("math"), access, counted=0),
        variable_values=None,
        operation_name=None,
    )
    async with aclosing(results):
        assert (await anext(results)).data == {"messages": {"cursor": "1"}}
    # Neither later nor by another task, as a generator that only the interpreter closes.
    assert messages.closed_by == [asyncio.current_task()]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "the query has no operation"),
        ("read", "`operationName` names no operation of the query"),
    ],
)
async def test_a_query_without_the_operation_is_refused(name: str | None, problem: str) -> None:
    settings = GraphQLSettings()
    access: Any = SimpleNamespace(settings=settings)
    result = await MeshSchema(settings).execute(
        "fragment parts on Room { name }",
        context_value=OperationContext(Caller("math"), access, counted=0),
        variable_values=None,
        operation_name=name,
    )
    assert [error.message for error in result.errors or ()] == [problem]
