"""Valid requests of every operation, version and binding, as a base for mutations."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from harness.a2a.protocol_variants import (
    grpc_request,
    json_rpc_request,
    operations_of,
    rest_request,
)

Json: TypeAlias = dict[str, Any]

V1: Final = "/lf.a2a.v1.A2AService/"
V0_3: Final = "/a2a.v1.A2AService/"
_PACKAGES: Final = {"1.0": V1, "0.3": V0_3}
_URL: Final = "https://203.0.113.1/hook"
# Parts other than text, in the format of each version over JSON-RPC and in protobuf.
_PARTS: Final[dict[str, tuple[Json, ...]]] = {
    "1.0": ({"data": {"n": [1, None]}}, {"raw": "AAEC"}, {"url": "https://a.b/c"}),
    "0.3": (
        {"kind": "data", "data": {"n": [1, 2]}, "metadata": {"k": "v"}},
        {"kind": "file", "file": {"bytes": "AAEC", "mimeType": "x/y", "name": "a"}},
    ),
    "0.1": ({"type": "file", "file": {"bytes": "AAEC"}},),
    "0.3 proto": ({"data": {"data": {"n": 1}}}, {"file": {"fileWithBytes": "AAEC"}}),
}
_SECRETS: Final[dict[str, Json]] = {
    "1.0": {"token": "t", "authentication": {"scheme": "Basic"}},
    "0.3": {"token": "t", "authentication": {"schemes": ["Bearer"], "credentials": "c"}},
}


@dataclass(frozen=True, slots=True)
class Targets:
    """The ids of an ended and a waiting task, which the requests refer to."""

    ended: str
    waiting: str


def _requests(version: str, targets: Targets, *, in_proto: bool = False) -> Iterator[Any]:
    """Yield operations with the fields of their requests."""
    waiting = {"task": targets.waiting}
    named = {**waiting, "config": "x"}
    # The same ids in each run, so that a seed repeats its requests. In v0.1 the client chooses the
    # id of its task.
    own = {"message_id": "m", **({"task": "chosen"} if version == "0.1" else {})}
    metadata = {"a": [1, {"b": None}], "k": "v"}
    yield "send", {"text": "hello", "history": 3, "modes": ["text/plain"], **own}
    yield "send", {"text": "hello", **own, **waiting, "now": True, "more": {"metadata": metadata}}
    yield "send", {"text": "hello", "hook": _URL, **own}
    for part in _PARTS[f"{version} proto" if in_proto and version == "0.3" else version]:
        yield "send", {"text": "", "part": part, **own}
    yield "stream", {"text": "hello", "context": "c", **own}
    yield "get", {"task": targets.ended, "history": 1}
    yield "list", {"pageSize": 2, "status": "TASK_STATE_COMPLETED", "contextId": "c"}
    yield "list", {"statusTimestampAfter": "2026-01-01T00:00:00Z", "pageToken": "x"}
    yield "cancel", waiting
    yield "subscribe", waiting
    yield "set_push", {**named, "url": _URL, "secrets": _SECRETS.get(version, {})}
    yield "get_push", named
    yield "list_push", waiting
    yield "delete_push", named
    yield "extended_card", {}


def _of_version(version: str, targets: Targets, *, in_proto: bool) -> Iterator[tuple[str, Json]]:
    for operation, fields in _requests(version, targets, in_proto=in_proto):
        if operation in operations_of(version):
            yield operation, fields


def json_rpc(targets: Targets) -> list[tuple[str, Json]]:
    """Return the requests of every method over JSON-RPC, by its version."""
    requests = []
    for version in ("1.0", "0.3", "0.1"):
        for operation, fields in _of_version(version, targets, in_proto=False):
            method, params = json_rpc_request(version, operation, fields)
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            requests.append((version, body))
    return requests


def rest(targets: Targets) -> list[tuple[str, str, Json | None]]:
    """Return the requests of HTTP+JSON in both versions: method, target and body."""
    requests: list[tuple[str, str, Json | None]] = [
        ("GET", "/.well-known/agent-card.json", None),
        ("GET", "/.well-known/agent.json", None),
        ("GET", "/healthz", None),
    ]
    for version in _PACKAGES:
        for operation, fields in _of_version(version, targets, in_proto=True):
            verb, path, params = rest_request(version, operation, fields)
            if verb == "POST":
                requests.append((verb, path, params))
            else:
                query = "&".join(f"{name}={value}" for name, value in params.items())
                requests.append((verb, f"{path}?{query}" if query else path, None))
    return requests


def grpc_calls(targets: Targets) -> list[tuple[str, Message]]:
    """Return the requests of every method of both packages."""
    calls = []
    for version, package in _PACKAGES.items():
        for operation, fields in _of_version(version, targets, in_proto=True):
            method, request = grpc_request(version, operation, fields)
            calls.append((package + method, request))
    return calls
