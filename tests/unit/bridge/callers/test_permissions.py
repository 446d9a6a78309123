"""Permissions: their names, and the errors that say what is missing."""

import pytest

from trunkline.a2a_wire.errors import FORBIDDEN, WireError
from trunkline.a2a_wire.operations import OPERATIONS
from trunkline.v1 import messaging_service_pb2
from trunkline_bridge.a2a.operations.operation_table import SERVED_OPERATIONS
from trunkline_bridge.api.workflows.operations import WORKFLOW_METHODS
from trunkline_bridge.callers.permissions import (
    GET_ARTIFACT,
    GET_METRICS,
    METHODS,
    Grant,
    Permissions,
    parse_methods,
)

READER = Grant(methods=parse_methods(["read"]), scope="tasks:read")
WRITER = Grant(agents=("math",), scope="math:all")


def refusal(permissions: Permissions, agent: str, method: str) -> WireError:
    with pytest.raises(WireError) as raised:
        permissions.check(agent, method)
    assert raised.value.kind is FORBIDDEN
    return raised.value


def test_every_operation_has_a_permission() -> None:
    names = {operation.permission for operation in SERVED_OPERATIONS}
    assert names == {operation.name for operation in OPERATIONS}
    service = messaging_service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    names |= {method.name for method in service.methods}
    assert names | {GET_ARTIFACT, GET_METRICS, *WORKFLOW_METHODS} == METHODS


def test_credentials_only_read_if_all_their_scopes_do() -> None:
    assert Permissions((READER,)).is_read_only
    assert Permissions(()).is_read_only
    assert not Permissions((READER, WRITER)).is_read_only


@pytest.mark.parametrize(
    ("permissions", "agent", "method", "scope", "text"),
    [
        (
            Permissions((READER,)),
            "a",
            "SendMessage",
            "SendMessage",
            "the API key lacks this method",
        ),
        (Permissions((WRITER,)), "a", "GetTask", "agent:a", "the API key lacks this agent"),
        (Permissions((), (READER,)), "a", "GetTask", "tasks:read", "lacks the scope 'tasks:read'"),
        (Permissions((READER,), (READER, WRITER)), "math", "SendMessage", "math:all", "'math:all'"),
        (
            Permissions((READER,), (READER,)),
            "a",
            "SendMessage",
            "",
            "no scope of tokens permits it",
        ),
    ],
)
def test_a_refusal_says_what_is_missing(
    permissions: Permissions, agent: str, method: str, scope: str, text: str
) -> None:
    error = refusal(permissions, agent, method)
    assert text in error.text
    assert method in error.text
    assert repr(agent) in error.text
    assert error.metadata == {"agent": agent, "method": method, "scope": scope}
    expected = f'Bearer realm="trunkline", error="insufficient_scope", scope="{scope}"'
    assert error.headers() == {"www-authenticate": expected}
