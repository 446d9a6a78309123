"""The paths of operations over HTTP+JSON, and their parameters.

A2A v1.0 (§11.3) has `{base}[/{tenant}]/message:send` and so on, v0.3 `{base}/v1/message:send`. The
base is the agent's address: `/agents/NAME`, or `/` for the default agent.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline_bridge.a2a.operations.operation_table import StreamOperation, UnaryOperation

# Protobuf has descriptors in Python and in C, whose types have nothing in common.
_Descriptor: TypeAlias = Any

Routes: TypeAlias = Mapping[str, Mapping[str, UnaryOperation | StreamOperation]]
"""The operation of each path and HTTP method."""

_FIELD = re.compile(r"\{\w+\}")
_ACTION = re.compile(r":\w+$")


def rest_routes(rows: Iterable[tuple[str, UnaryOperation | StreamOperation]]) -> Routes:
    """Return the operation for each path and method of HTTP.

    Args:
        rows: The paths of the operations, with the fields of the request in braces. The first field
            is the task id, the second one the id of a push notification config.
    """
    routes: dict[str, dict[str, UnaryOperation | StreamOperation]] = {}
    for path, operation in rows:
        route = path
        for field, name in zip(_FIELD.findall(path), ("task_id", "config_id"), strict=False):
            route = route.replace(field, f"{{{name}:segment}}")
        by_method = routes.setdefault(route, {})
        by_method.update(dict.fromkeys(operation.wire.http_methods, operation))
    # The first route that matches wins, and a task id may contain a colon.
    return dict(sorted(routes.items(), key=lambda entry: not _ACTION.search(entry[0])))


class PathParams(NamedTuple):
    """The parameters in a path; an absent one is empty."""

    agent: str = ""
    tenant: str = ""
    task_id: str = ""
    config_id: str = ""


def put_path_field(params: Json, field: _Descriptor, value: str) -> None:
    """Set a field to its value in the path. WireError: the parameters have another value."""
    for name in {field.json_name, field.name}:
        if params.pop(name, None) not in (None, "", value):
            raise invalid_params((field.json_name, "differs from the path; leave it out"))
    params[field.json_name] = value
