"""Each path of HTTP+JSON routes to one operation of one agent; other paths route to nothing."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Receive, Scope, Send

from trunkline_bridge.bindings.http_handler import Binding
from trunkline_bridge.bindings.rest import RestBinding, RestResource
from trunkline_bridge.bindings.rest_request import PathParams, encode_segments
from trunkline_bridge.edge.pages import mount

CONFIGS = "tasks/t-1/pushNotificationConfigs"
OPERATIONS = [
    ("POST", "message:send", "SendMessage"),
    ("POST", "message:stream", "SendStreamingMessage"),
    ("GET", "tasks/t-1", "GetTask"),
    ("POST", "tasks/t-1:cancel", "CancelTask"),
    ("GET", "tasks/t-1:subscribe", "SubscribeToTask"),
    ("POST", "tasks/t-1:subscribe", "SubscribeToTask"),
    ("POST", CONFIGS, "CreateTaskPushNotificationConfig"),
    ("GET", CONFIGS, "ListTaskPushNotificationConfigs"),
    ("GET", f"{CONFIGS}/c-1", "GetTaskPushNotificationConfig"),
    ("DELETE", f"{CONFIGS}/c-1", "DeleteTaskPushNotificationConfig"),
]
ONLY_V1 = [("GET", "tasks", "ListTasks"), ("GET", "extendedAgentCard", "GetExtendedAgentCard")]
ONLY_V0_3 = [("GET", "card", "GetExtendedAgentCard")]


# Nothing is called.
REST = RestBinding(None, None, is_strict=False)  # type: ignore[arg-type]


class Endpoint:
    """Stands for the application of a resource."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("nothing is called")


ROUTES = [mount("/agents/{agent:segment}", REST.routes(Endpoint)), *REST.routes(Endpoint)]


class Place(NamedTuple):
    """The resource and the parameters of a path."""

    version: str
    verbs: Mapping[str, str]
    params: PathParams


def route(scope: dict[str, Any], routes: list[BaseRoute]) -> Place | None:
    """Return the match of the first route that fits, as Starlette's router does."""
    for one in routes:
        match, child = one.matches(scope)
        if match is Match.NONE:
            continue
        below = {**scope, **child}
        if isinstance(one, Mount):
            return route(below, one.routes)
        resource = below["endpoint"].binding
        assert isinstance(resource, RestResource)
        params = PathParams(**below["path_params"])
        return Place(resource.version.version, resource.operations, params)
    return None


def find_place(scope: dict[str, Any]) -> Place | None:
    return route(dict(encode_segments({"type": "http", "method": "GET", **scope})), ROUTES)


def place(path: str) -> Place | None:
    decoded = unquote(path, errors="replace")
    return find_place({"path": decoded, "raw_path": path.encode("utf-8")})


def found(path: str) -> Place:
    at = place(path)
    assert at is not None, path
    return at


@pytest.mark.parametrize(
    ("address", "agent"), [("/", ""), ("/agents/echo/", "echo"), ("/agents/a%20b/", "a b")]
)
def test_operations_are_below_each_agents_address(address: str, agent: str) -> None:
    for method, below, operation in OPERATIONS + ONLY_V1:
        at = found(address + below)
        assert (at.version, at.verbs[method], at.params.agent) == ("1.0", operation, agent)
        tenant = found(f"{address}blue/{below}")
        assert tenant == at._replace(params=at.params._replace(tenant="blue"))
    for method, below, operation in OPERATIONS + ONLY_V0_3:
        at = found(f"{address}v1/{below}")
        assert (at.version, at.verbs[method], at.params.agent) == ("0.3", operation, agent)
        assert place(f"{address}blue/v1/{below}") is None


def test_tasks_and_configurations_are_named_by_the_path() -> None:
    at = found("/agents/echo/tasks/t-1/pushNotificationConfigs/c-1")
    assert (at.params.task_id, at.params.config_id) == ("t-1", "c-1")
    assert found("/tasks/t-1:cancel").params.task_id == "t-1"
    assert found("/tasks/t-1%3Acancel").verbs == {"POST": "CancelTask"}
    odd = found("/tasks/a:b:c")
    assert (odd.verbs, odd.params.task_id) == ({"GET": "GetTask"}, "a:b:c")


@pytest.mark.parametrize(
    "path",
    [
        *("/agents/echo", "/agents/echo/", "/agents/", "/agents//tasks", "/foo", "/foo/bar"),
        *("/tasks/", "/tasks//pushNotificationConfigs", "/tasks/t/pushNotificationConfigs/"),
        *("/message:send/tasks", "/.well-known/tasks", "/v1/tasks", "/v1/extendedAgentCard"),
        *("/agents/echo/blue/green/tasks", "/agents/echo/card", "/tasks/a/b", "/", "//", ""),
    ],
)
def test_other_paths_name_nothing(path: str) -> None:
    assert place(path) is None


def test_an_address_that_ends_with_a_slash_may_be_put_before_a_path_that_begins_with_one() -> None:
    assert found("//message:send") == found("/message:send")
    assert found("/agents/echo//tasks/t") == found("/agents/echo/tasks/t")


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_name_can_be_said_in_a_path(task_id: str, config_id: str) -> None:
    named = (quote(task_id, safe=""), quote(config_id, safe=""))
    at = found("/tasks/{}/pushNotificationConfigs/{}".format(*named))
    assert (at.params.task_id, at.params.config_id) == (task_id, config_id)


@given(st.text(alphabet="/:%agents tokv1message.é", max_size=40), st.booleans())
def test_any_path_is_read_without_a_failure(path: str, has_raw: bool) -> None:
    scope = {"path": f"/{path}"}
    at = find_place(scope | ({"raw_path": f"/{path}".encode()} if has_raw else {}))
    assert at is None or at.verbs
