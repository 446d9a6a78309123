"""Converts errors to GraphQL errors: a text, and `extensions` with the code and the reason."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.rpc import code_pb2
from graphql import GraphQLError, GraphQLSyntaxError

from trunkline.a2a_wire.errors import ErrorKind, WireError, to_wire_error
from trunkline.errors import TrunklineError
from trunkline_bridge.http import tracing

SYNTAX_ERROR: Final = ErrorKind(-32600, "GRAPHQL_PARSE_FAILED", 400)
VALIDATION_ERROR: Final = ErrorKind(-32600, "GRAPHQL_VALIDATION_FAILED", 400)
LIMIT_ERROR: Final = ErrorKind(-32600, "GRAPHQL_LIMIT_EXCEEDED", 400)
"""The operation is over a limit of depth, cost, aliases or tokens."""


def error_extensions(error: WireError) -> dict[str, Any]:
    """Return the extensions of an error, which programs read."""
    found: dict[str, Any] = {
        "code": code_pb2.Code.Name(error.kind.grpc_code),
        "reason": error.kind.reason,
    }
    if error.metadata:
        found["metadata"] = dict(error.metadata)
    if error.violations:
        found["violations"] = [
            {"field": name, "problem": problem} for name, problem in error.violations
        ]
    if error.retry_after_s:
        found["retryAfterSeconds"] = float(error.retry_after_s)
    return found


def error_result(error: WireError) -> Mapping[str, Any]:
    """Return the response to a request that was refused before it ran."""
    return {"errors": [{"message": error.text, "extensions": error_extensions(error)}]}


def _to_reported(error: GraphQLError) -> GraphQLError:
    """Return an error as callers see it. An unexpected one is logged, and has only a trace id."""
    wire_error = _find_wire_error(error)
    tracing.record_failure(wire_error.kind.reason)
    return GraphQLError(
        wire_error.text,
        nodes=error.nodes,
        source=error.source,
        positions=error.positions,
        path=error.path,
        extensions=error_extensions(wire_error),
    )


def _find_wire_error(error: GraphQLError) -> WireError:
    original = error.original_error
    if isinstance(original, WireError | TrunklineError):
        return to_wire_error(original)
    if isinstance(error, GraphQLSyntaxError):
        return WireError(SYNTAX_ERROR, error.message)
    # A variable that does not fit its type has the exception of the type.
    is_of_request = original is None or isinstance(original, GraphQLError)
    if is_of_request or (error.path is None and error.nodes):
        return WireError(VALIDATION_ERROR, error.message)
    return to_wire_error(original or error)


def report(errors: Sequence[GraphQLError]) -> list[GraphQLError]:
    """Return errors as callers see them."""
    return list(map(_to_reported, errors))
