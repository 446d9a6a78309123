"""The schema, which the file `schema.graphql` declares: it runs operations within their limits."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib.resources import files
from inspect import isawaitable
from typing import Any, Final, NamedTuple, cast

from graphql import (
    DocumentNode,
    GraphQLError,
    NoSchemaIntrospectionCustomRule,
    OperationDefinitionNode,
    OperationType,
    build_schema,
    execute,
    parse,
    specified_rules,
    subscribe,
    validate,
)
from graphql import ExecutionResult as GraphQLResult
from strawberry.types.execution import ExecutionResult, PreExecutionError

from trunkline.a2a_wire.errors import INVALID_REQUEST, WireError
from trunkline.core.settings import GraphQLSettings
from trunkline.errors import TrunklineError
from trunkline_bridge.api.graphql.context import OperationContext
from trunkline_bridge.api.graphql.errors import report
from trunkline_bridge.api.graphql.fields import bind_fields
from trunkline_bridge.api.graphql.limits import MAX_TOKENS, check_limits
from trunkline_bridge.api.graphql.messages import (
    MessageMutations,
    MessageQueries,
    MessageSubscriptions,
)
from trunkline_bridge.api.graphql.rooms import RoomMutations, RoomQueries
from trunkline_bridge.api.graphql.workflows import (
    WorkflowMutations,
    WorkflowQueries,
    WorkflowSubscriptions,
)

_NO_STREAM: Final = (
    "subscriptions need a stream: send `Accept: text/event-stream`, or use a WebSocket with the "
    "subprotocol graphql-transport-ws"
)


class RootQuery(MessageQueries, RoomQueries, WorkflowQueries):
    """Reads messages, rooms, workflows and their runs."""


class RootMutation(MessageMutations, RoomMutations, WorkflowMutations):
    """Sends messages, changes rooms, and controls workflows and their runs."""


class RootSubscription(MessageSubscriptions, WorkflowSubscriptions):
    """Streams of messages, and of the events of runs."""


ROOTS: Final[Mapping[OperationType, object]] = {
    OperationType.QUERY: RootQuery(),
    OperationType.MUTATION: RootMutation(),
    OperationType.SUBSCRIPTION: RootSubscription(),
}
"""The objects from which the fields of Query, Mutation and Subscription are read."""


class _Operation(NamedTuple):
    """An operation that may run, and the arguments by which the library runs it."""

    is_stream: bool
    arguments: Mapping[str, Any]


class MeshSchema:
    """The schema with the limits of the settings. Its results have errors as callers see them."""

    def __init__(self, settings: GraphQLSettings) -> None:
        text = (files("trunkline_bridge.api.graphql") / "schema.graphql").read_text("utf-8")
        self.declared = build_schema(text)
        bind_fields(self.declared)
        self._settings = settings
        hidden = () if settings.introspection else (NoSchemaIntrospectionCustomRule,)
        self._rules = (*specified_rules, *hidden)

    async def execute(
        self,
        query: str,
        *,
        context_value: OperationContext,
        variable_values: Mapping[str, Any] | None,
        operation_name: str | None,
    ) -> ExecutionResult:
        """Return the result of a query or a mutation; a subscription is refused."""
        operation = self._prepare(
            query, context_value, variable_values, operation_name, takes_streams=False
        )
        if isinstance(operation, PreExecutionError):
            return operation
        return await self._run(operation)

    async def stream(
        self,
        query: str,
        *,
        context_value: OperationContext,
        variable_values: Mapping[str, Any] | None,
        operation_name: str | None,
        # Strawberry's handler of WebSockets passes it to every schema.
        root_value: None = None,
    ) -> AsyncGenerator[ExecutionResult, None]:
        """Return the results of an operation: one, or those of a subscription."""
        operation = self._prepare(
            query, context_value, variable_values, operation_name, takes_streams=True
        )
        return self._read(operation)

    async def _read(
        self, operation: _Operation | PreExecutionError
    ) -> AsyncGenerator[ExecutionResult, None]:
        if isinstance(operation, PreExecutionError):
            yield operation
            return
        if not operation.is_stream:
            yield await self._run(operation)
            return
        opened = subscribe(**operation.arguments)
        results = await opened if isawaitable(opened) else opened
        if isinstance(results, GraphQLResult):
            yield PreExecutionError(data=None, errors=report(results.errors or ()))
            return
        try:
            # The library declares an iterator, and returns a generator: closing it closes the
            # source of the events.
            async with aclosing(cast("AsyncGenerator[GraphQLResult, None]", results)) as reading:
                async for result in reading:
                    yield _to_result(result)
        # The library passes on what the source of the events raises.
        except Exception as error:  # noqa: BLE001  the last result reports it
            yield ExecutionResult(data=None, errors=report([_wrap(error)]))

    async def _run(self, operation: _Operation) -> ExecutionResult:
        found = execute(**operation.arguments)
        return _to_result(await found if isawaitable(found) else found)

    def _prepare(
        self,
        query: str,
        context: OperationContext,
        variables: Mapping[str, Any] | None,
        name: str | None,
        *,
        takes_streams: bool,
    ) -> _Operation | PreExecutionError:
        """Return an operation that is within the limits and valid, or the errors that refuse it."""
        settings = self._settings
        values = dict(variables or {})
        try:
            document = parse(query, max_tokens=MAX_TOKENS)
            operation = _find_operation(document, name)
            is_stream = operation.operation is OperationType.SUBSCRIPTION
            if is_stream and not takes_streams:
                raise WireError(INVALID_REQUEST, _NO_STREAM)
            # The limits come first, because validating a hostile operation is expensive.
            check_limits(self.declared, document, operation, values, context, settings)
        except (GraphQLError, WireError, TrunklineError) as error:
            return PreExecutionError(data=None, errors=report([_wrap(error)]))
        hides = not settings.introspection
        if errors := validate(self.declared, document, self._rules, hide_suggestions=hides):
            return PreExecutionError(data=None, errors=report(errors))
        arguments = {
            "schema": self.declared,
            "document": document,
            "root_value": ROOTS[operation.operation],
            "context_value": context.start(is_stream=is_stream),
            "variable_values": values,
            "operation_name": name,
            "hide_suggestions": hides,
        }
        return _Operation(is_stream, arguments)


def _find_operation(document: DocumentNode, name: str | None) -> OperationDefinitionNode:
    """Return the operation of a name, or the first operation.

    Raises:
        WireError: there is none.
    """
    for node in document.definitions:
        if isinstance(node, OperationDefinitionNode) and (
            name is None or (node.name is not None and node.name.value == name)
        ):
            return node
    problem = "`operationName` names no operation of the query"
    raise WireError(INVALID_REQUEST, "the query has no operation" if name is None else problem)


def _to_result(result: GraphQLResult) -> ExecutionResult:
    return ExecutionResult(result.data, report(result.errors) if result.errors else None)


def _wrap(error: Exception) -> GraphQLError:
    return (
        error if isinstance(error, GraphQLError) else GraphQLError(str(error), original_error=error)
    )
