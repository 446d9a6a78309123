"""Every method in the README's table works in each version and binding."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.grpc_client import GrpcMesh
from harness.a2a.protocol_variants import (
    SPOKEN,
    ProtocolVariant,
    find_variant,
    open_variants,
    operations_of,
)
from harness.agents.partner_agent import partner

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOOK = "http://127.0.0.1:9/hook"
CELLS = [
    pytest.param(variant, operation, id=f"{variant[0]} {variant[1].binding} {operation}")
    for variant in SPOKEN
    for operation in sorted(operations_of(variant[0]))
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    async with open_variants(tmp_path_factory.mktemp("table"), partner) as mesh:
        yield mesh


@pytest.mark.parametrize(("variant", "operation"), CELLS)
async def test_a_method_works(
    mesh: GrpcMesh, variant: tuple[str, type[ProtocolVariant]], operation: str
) -> None:
    check = CALLS[operation]
    await check(find_variant(mesh, variant))


async def make_waiting_task(wire: ProtocolVariant) -> str:
    """Make a task that waits for input; return its id."""
    task = await wire.send("ask what?")
    assert (task.kind, task.state, task.status_text) == ("task", "input-required", "what?")
    return task.task


async def send(wire: ProtocolVariant) -> None:
    task = await wire.send("count 3")
    assert (task.kind, task.state, task.text) == ("task", "completed", "1 2 3 ")


async def stream(wire: ProtocolVariant) -> None:
    events = await wire.streamed("count 20")
    texts = [event.text for event in events if event.kind == "artifact"]
    assert "".join(texts) == "".join(f"{number} " for number in range(1, 21))
    assert events[-1].state == "completed"


async def get(wire: ProtocolVariant) -> None:
    task = await make_waiting_task(wire)
    fetched = await wire.get(task, history=5)
    assert (fetched.task, fetched.state, fetched.history[0]) == (
        task,
        "input-required",
        "ask what?",
    )


async def list_tasks(wire: ProtocolVariant) -> None:
    task = await wire.get(await make_waiting_task(wire))
    page = await wire.ask("list", contextId=task.context)
    assert [item["id"] for item in page["tasks"]] == [task.task]


async def cancel(wire: ProtocolVariant) -> None:
    task = await make_waiting_task(wire)
    canceled = await wire.cancel(task)
    assert (canceled.task, canceled.state) == (task, "canceled")


async def subscribe(wire: ProtocolVariant) -> None:
    task = await wire.send("wait", now=True) if wire.version != "0.1" else await start_task(wire)
    async with wire.subscribe(task.task) as events:
        assert (await anext(events)).task == task.task
        await wire.cancel(task.task)
        assert [event.state async for event in events][-1] == "canceled"


async def start_task(wire: ProtocolVariant) -> Any:
    """Start a task by a stream, because a v0.1 send waits for the task."""
    async with wire.stream("wait") as events:
        return await anext(events)


async def set_push(wire: ProtocolVariant) -> None:
    created = await wire.ask("set_push", task=await make_waiting_task(wire), config="c", url=HOOK)
    assert HOOK in str(created)


async def get_push(wire: ProtocolVariant) -> None:
    task = await make_waiting_task(wire)
    created = await wire.ask("set_push", task=task, config="c", url=HOOK)
    assert await wire.ask("get_push", task=task, config="c") == created


async def list_push(wire: ProtocolVariant) -> None:
    task = await make_waiting_task(wire)
    created = await wire.ask("set_push", task=task, config="c", url=HOOK)
    page = await wire.ask("list_push", task=task)
    assert (page if isinstance(page, list) else page["configs"]) == [created]


async def delete_push(wire: ProtocolVariant) -> None:
    task = await make_waiting_task(wire)
    await wire.ask("set_push", task=task, config="c", url=HOOK)
    await wire.ask("delete_push", task=task, config="c")
    page = await wire.ask("list_push", task=task)
    assert not (page if isinstance(page, list) else page.get("configs"))


async def extended_card(wire: ProtocolVariant) -> None:
    card = await wire.ask("extended_card")
    assert [skill["id"] for skill in card["skills"]] == ["partner", "secret"]


CALLS: dict[str, Callable[[ProtocolVariant], Awaitable[None]]] = {
    "send": send,
    "stream": stream,
    "get": get,
    "list": list_tasks,
    "cancel": cancel,
    "subscribe": subscribe,
    "set_push": set_push,
    "get_push": get_push,
    "list_push": list_push,
    "delete_push": delete_push,
    "extended_card": extended_card,
}
