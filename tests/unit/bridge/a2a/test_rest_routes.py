"""Each HTTP+JSON path routes to one operation of one agent; other paths have no route."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Receive, Scope, Send

from trunkline_bridge.a2a.bindings.rest import RestBinding, RestResource
from trunkline_bridge.a2a.versions.rest_routes import PathParams
from trunkline_bridge.http.handler import Binding
from trunkline_bridge.http.pages import mount
from trunkline_bridge.http.requests import encode_segments

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


# The tests call no operation of it.
REST = RestBinding(None, None, is_strict=False)  # type: ignore[arg-type]


class Endpoint:
    """Stands in for the application of a resource."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("no call is expected")


ROUTES = [mount("/agents/{agent:segment}", REST.routes(Endpoint)), *REST.routes(Endpoint)]


class RouteMatch(NamedTuple):
    """The version, the operations and the parameters of a path."""

    version: str
    verbs: Mapping[str, str]
    params: PathParams


def route(scope: dict[str, Any], routes: list[BaseRoute]) -> RouteMatch | None:
    """Return the match of the first route that matches, as Starlette's router does."""
    for route_ in routes:
        match, child = route_.matches(scope)
        if match is Match.NONE:
            continue
        suffix = {**scope, **child}
        if isinstance(route_, Mount):
            return route(suffix, route_.routes)
        resource = suffix["endpoint"].binding
        assert isinstance(resource, RestResource)
        params = PathParams(**suffix["path_params"])
        return RouteMatch(resource.version.version, resource.operations, params)
    return None


def match_scope(scope: dict[str, Any]) -> RouteMatch | None:
    return route(dict(encode_segments({"type": "http", "method": "GET", **scope})), ROUTES)


def match_path(path: str) -> RouteMatch | None:
    decoded = unquote(path, errors="replace")
    return match_scope({"path": decoded, "raw_path": path.encode("utf-8")})


def require_match(path: str) -> RouteMatch:
    match_ = match_path(path)
    assert match_ is not None, path
    return match_


@pytest.mark.parametrize(
    ("address", "agent"), [("/", ""), ("/agents/echo/", "echo"), ("/agents/a%20b/", "a b")]
)
def test_operations_are_under_each_agents_address(address: str, agent: str) -> None:
    for method, suffix, operation in OPERATIONS + ONLY_V1:
        match_ = require_match(address + suffix)
        assert (match_.version, match_.verbs[method], match_.params.agent) == (
            "1.0",
            operation,
            agent,
        )
        tenant = require_match(f"{address}blue/{suffix}")
        assert tenant == match_._replace(params=match_.params._replace(tenant="blue"))
    for method, suffix, operation in OPERATIONS + ONLY_V0_3:
        match_ = require_match(f"{address}v1/{suffix}")
        assert (match_.version, match_.verbs[method], match_.params.agent) == (
            "0.3",
            operation,
            agent,
        )
        assert match_path(f"{address}blue/v1/{suffix}") is None


def test_tasks_and_configurations_are_read_from_the_path() -> None:
    match_ = require_match("/agents/echo/tasks/t-1/pushNotificationConfigs/c-1")
    assert (match_.params.task_id, match_.params.config_id) == ("t-1", "c-1")
    assert require_match("/tasks/t-1:cancel").params.task_id == "t-1"
    assert require_match("/tasks/t-1%3Acancel").verbs == {"POST": "CancelTask"}
    odd = require_match("/tasks/a:b:c")
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
def test_other_paths_have_no_route(path: str) -> None:
    assert match_path(path) is None


def test_a_double_slash_between_address_and_path_is_accepted() -> None:
    assert require_match("//message:send") == require_match("/message:send")
    assert require_match("/agents/echo//tasks/t") == require_match("/agents/echo/tasks/t")


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_quoted_name_is_read_from_a_path(task_id: str, config_id: str) -> None:
    named = (quote(task_id, safe=""), quote(config_id, safe=""))
    match_ = require_match("/tasks/{}/pushNotificationConfigs/{}".format(*named))
    assert (match_.params.task_id, match_.params.config_id) == (task_id, config_id)


@given(st.text(alphabet="/:%agents tokv1message.é", max_size=40), st.booleans())
def test_any_path_is_matched_without_a_failure(path: str, has_raw: bool) -> None:
    scope = {"path": f"/{path}"}
    match_ = match_scope(scope | ({"raw_path": f"/{path}".encode()} if has_raw else {}))
    assert match_ is None or match_.verbs
