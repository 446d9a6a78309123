"""Streams that stay open for a limited time while a task waits for credentials."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.a2a.grpc_client import GrpcMesh
from harness.a2a.protocol_variants import (
    SPOKEN,
    ProtocolVariant,
    TaskView,
    find_variant,
    open_variants,
)
from harness.agents.partner_agent import partner
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.a2a_wire.protocol import RESUME_EXTENSION

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 0.05
RESUME = {"A2A-Extensions": RESUME_EXTENSION}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    folder = tmp_path_factory.mktemp("auth_waits")
    async with open_variants(folder, partner, auth_wait_s=WAIT_S) as mesh:
        yield mesh


@pytest.fixture(
    params=[spoken for spoken in SPOKEN if spoken[0] == "1.0"], ids=lambda spoken: spoken[1].binding
)
def wire(mesh: GrpcMesh, request: pytest.FixtureRequest) -> ProtocolVariant:
    return find_variant(mesh, request.param)


async def test_a_stream_ends_cleanly_when_credentials_take_long(wire: ProtocolVariant) -> None:
    began_s = asyncio.get_running_loop().time()
    events = await wire.streamed("login first")
    assert asyncio.get_running_loop().time() - began_s >= WAIT_S
    assert events[-1].state == "auth-required"
    task = events[0].task
    assert (await wire.get(task)).state == "auth-required"
    # The next turn is an ordinary one.
    assert (await wire.streamed("done", task=task))[-1].state == "completed"


async def test_a_resumed_stream_does_not_extend_the_wait(wire: ProtocolVariant) -> None:
    message_id = f"again-{wire.binding}"

    async def resumed(**cursor: str) -> list[TaskView]:
        headers = {**RESUME, **cursor}
        return await wire.streamed("login first", message_id=message_id, headers=headers)

    first = await resumed()
    again = await resumed()
    assert (again[-1].task, again[-1].state) == (first[0].task, "auth-required")
    assert await resumed(**{"Last-Event-ID": first[-1].id}) == []


async def test_a_subscription_stays_open_longer(wire: ProtocolVariant) -> None:
    task = (await wire.streamed("login first"))[0].task
    async with asyncio.timeout(PATIENCE_S), wire.subscribe(task) as events:
        assert (await anext(events)).state == "auth-required"
        # Another stream starts its wait later, and its wait is over, too.
        await wire.streamed("login again", task=task)
        await wire.send("done", task=task)
        assert [event.state async for event in events][-1] == "completed"
