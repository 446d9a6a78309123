"""The bridge's gRPC edge on a real socket, and the reference SDK's stubs to call it with."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, a2a_v0_3_pb2_grpc
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.rpc import error_details_pb2, status_pb2

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.mesh.small_mesh import PATIENCE_S
from harness.polling import wait_for
from trunkline.json_values import parse_dict
from trunkline.settings import HostPort, Settings
from trunkline_bridge.a2a.bindings.grpc import GrpcBinding
from trunkline_bridge.a2a.bindings.grpc_server import serve_grpc

ANY_PORT = HostPort("127.0.0.1", 0)

_ids = itertools.count(1)

Metadata = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a gRPC client receives it."""

    code: str
    text: str
    reason: str
    metadata: dict[str, str]
    violations: dict[str, str]
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class GrpcMesh:
    """A mesh, its bridge, and a channel to the bridge's gRPC edge."""

    bridged: BridgedMesh
    address: str
    channel: grpc.aio.Channel
    v1: Any
    """The reference SDK's stub of lf.a2a.v1."""
    v0_3: Any
    """The same of a2a.v1."""

    def raw(self, method: str, body: bytes) -> Any:
        """Call any method with any bytes."""
        call: Any = self.channel.unary_unary(method)
        return call(body, timeout=PATIENCE_S)


@asynccontextmanager
async def open_grpc_mesh(
    folder: Path,
    settings: Settings | None = None,
    *,
    grace_s: float = 1.0,
    own: Sequence[str] = (),
) -> AsyncIterator[GrpcMesh]:
    """Open a mesh without agents, a bridge, and its gRPC edge; the default agent is `echo`."""
    async with (
        open_bridged_mesh(folder, settings) as bridged,
        open_bridge_grpc(bridged, grace_s, own=own) as mesh,
    ):
        yield mesh


@asynccontextmanager
async def open_bridge_grpc(
    bridged: BridgedMesh, grace_s: float = 1.0, *, own: Sequence[str] = ()
) -> AsyncIterator[GrpcMesh]:
    """Serve the gRPC edge of a bridge, and connect to it; `own` agents have an address each."""
    bridge = bridged.bridge
    async with (
        serve_grpc(bridge.grpc, dict.fromkeys(("", *own), ANY_PORT), grace_s=grace_s) as bound,
        grpc.aio.insecure_channel(bound[""]) as channel,
    ):
        address = bridge.addresses.grpc = bound[""]
        bridge.addresses.agent_grpc |= {name: bound[name] for name in own}
        v1 = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        v0_3 = a2a_v0_3_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        yield GrpcMesh(bridged, address, channel, v1, v0_3)


def send_request(text: str, **fields: Any) -> a2a_pb2.SendMessageRequest:
    """A request of v1.0; `fields` are those of the message, and `now` or `tenant`."""
    request = a2a_pb2.SendMessageRequest(tenant=fields.pop("tenant", ""))
    request.configuration.return_immediately = fields.pop("now", False)
    fields_json = {"messageId": f"m-{next(_ids)}", "role": "ROLE_USER", "parts": [{"text": text}]}
    parse_dict({**fields_json, **fields}, request.message)
    return request


def v0_3_send_request(text: str, *, blocking: bool = True, **fields: Any) -> Any:
    """The same in v0.3."""
    request = a2a_v0_3_pb2.SendMessageRequest()
    request.configuration.blocking = blocking
    fields_json = {"messageId": f"m-{next(_ids)}", "role": "ROLE_USER", "content": [{"text": text}]}
    parse_dict({**fields_json, **fields}, request.request)
    return request


async def wait_until_open(calls: GrpcBinding, count: int) -> None:
    """Wait until `count` calls are open: the bridge has no event for a client that leaves."""
    await wait_for(lambda: len(calls) == count)


async def collect(call: Any) -> list[Any]:
    """Read the rest of a stream."""
    events: list[Any] = []
    while (event := await call.read()) is not grpc.aio.EOF:
        events.append(event)
    return events


async def refusal(call: Awaitable[Any] | Callable[[], Awaitable[Any]]) -> Refusal:
    """Return the error of a call that must fail: a unary one, or a stream's reading."""
    waiting = call() if callable(call) else call
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await waiting
    return refusal_of(raised.value)


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    """Unpack an error's details, and assert that they agree with its status."""
    info = error_details_pb2.ErrorInfo()
    violations = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    trailing = dict(error.trailing_metadata() or ())
    packed = trailing.get("grpc-status-details-bin", b"")
    assert isinstance(packed, bytes)
    status = status_pb2.Status.FromString(packed)
    if packed:
        # Otherwise libraries such as grpcio-status refuse the details.
        assert (status.code, status.message) == (error.code().value[0], error.details())
    for detail in status.details:
        for kind in (info, violations, retry):
            detail.Unpack(kind)
    return Refusal(
        error.code().name,
        error.details() or "",
        info.reason,
        dict(info.metadata),
        {violation.field: violation.description for violation in violations.field_violations},
        retry.retry_delay.seconds,
    )
