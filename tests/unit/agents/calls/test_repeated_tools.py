"""Tool calls of code that runs again because its host was killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, define, message, texts
from harness.agents.shop import Orders
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from trunkline.agents import FunctionAgent
from trunkline.agents.calls.agent_call import ChildLimits
from trunkline.agents.calls.turn_calls import MeshCallees
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import INTERRUPTED
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import snapshot_pb2

ORDER = {"n": 2, "item": "pears"}


class Caller:
    """An agent that orders, and then waits; it can be killed before and after its order."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.ordered = asyncio.Event()
        self.proceed = asyncio.Event()

    @property
    def agent(self) -> FunctionAgent:
        callees = MeshCallees(None, self.orders, ChildLimits(), None)  # type: ignore[arg-type]
        return replace(define(self._run, repeatable=True), callees=callees)

    async def _run(self, task: TaskContext) -> str:
        result = await task.call_tool("shop/order", ORDER)
        self.ordered.set()
        await self.proceed.wait()
        return f"{result.text}{' (error)' if result.is_error else ''}"


@asynccontextmanager
async def killed_host(path: Path, agent: FunctionAgent) -> AsyncIterator[TaskHost]:
    host = TaskHost(open_journal(path), [agent])
    await host.__aenter__()
    try:
        yield host
    finally:
        await kill_host(host)


async def finish_elsewhere(
    path: Path, agent: FunctionAgent, task_id: str
) -> snapshot_pb2.TaskSnapshot:
    journal = open_journal(path)
    try:
        async with TaskHost(journal, [agent]) as host, asyncio.timeout(30):
            return await host.wait_turn(task_id)
    finally:
        await journal.close()


async def submit(host: TaskHost, text: str = "go", **fields: str) -> str:
    accepted = await host.submit("tested", message(text, **fields), NOTHING)
    assert isinstance(accepted, SubmitResult)
    return accepted.task_id


async def test_the_stored_result_of_a_call_that_ended_is_used(journal_path: Path) -> None:
    caller = Caller(Orders(needs_approval=False))
    async with killed_host(journal_path, caller.agent) as host:
        task_id = await submit(host)
        await caller.ordered.wait()
    caller.proceed.set()
    ended = await finish_elsewhere(journal_path, caller.agent, task_id)
    assert texts(ended) == ["Ordered 2 pears."]
    assert caller.orders.orders == [ORDER]


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_call_that_was_cut_is_repeated_only_if_that_is_safe(
    journal_path: Path, is_idempotent: bool
) -> None:
    orders = Orders(needs_approval=False, idempotent=is_idempotent)
    caller = Caller(orders)
    caller.proceed.set()
    orders.go.clear()
    async with killed_host(journal_path, caller.agent) as host:
        task_id = await submit(host)
        await orders.began.wait()
    orders.go.set()
    ended = await finish_elsewhere(journal_path, caller.agent, task_id)
    (text,) = texts(ended)
    if is_idempotent:
        assert text == "Ordered 2 pears."
        assert orders.orders == [ORDER, ORDER]
    else:
        assert "it is unknown whether it took effect" in text
        assert text.endswith("(error)")
        assert orders.orders == [ORDER]


async def test_an_approved_call_is_made_once(journal_path: Path) -> None:
    caller = Caller(Orders())
    async with killed_host(journal_path, caller.agent) as host:
        task_id = await submit(host)
        waiting = await host.wait_turn(task_id)
        assert waiting.task.status.state in INTERRUPTED
    async with killed_host(journal_path, caller.agent) as host:
        await submit(host, "approve", task_id=task_id)
        await caller.ordered.wait()
    caller.proceed.set()
    ended = await finish_elsewhere(journal_path, caller.agent, task_id)
    assert texts(ended) == ["Ordered 2 pears."]
    assert caller.orders.orders == [ORDER]
    (request,) = caller.orders.requests
    assert request.approval_id == f"{task_id}.1"
