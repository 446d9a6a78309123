"""Tasks of MCP servers that the code of an agent leaves are canceled when its turn ends."""

import asyncio
from dataclasses import replace
from pathlib import Path

from harness.agents.inline_agents import NOTHING, define, message, texts
from harness.agents.shop import Orders
from harness.journal.opening import open_journal
from trunkline.agents.calls.agent_call import ChildLimits
from trunkline.agents.calls.tool_source import OnProgress, OnTask
from trunkline.agents.calls.turn_calls import MeshCallees
from trunkline.core.json_values import struct_json
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import tool_service_pb2


class SlowOrders(Orders):
    """A shop whose orders become tasks of its server, named by their number, and never end."""

    def __init__(self) -> None:
        super().__init__(needs_approval=False)
        self.calls: list[asyncio.Task[object]] = []
        """The calls of the agent."""
        self.canceled: list[str] = []
        self.all_began = asyncio.Event()

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Become a task."""
        self.orders.append(struct_json(request.arguments))
        await on_task(str(len(self.orders)))
        if len(self.orders) == 2:
            self.all_began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def cancel_task(self, request: tool_service_pb2.CancelToolTaskRequest) -> None:
        """Note it. Meanwhile the code leaves its other calls."""
        self.canceled.append(request.handle)
        for call in self.calls:
            call.cancel()
        await asyncio.wait(self.calls)


async def test_a_task_that_is_left_while_others_are_canceled_is_canceled_too(
    journal_path: Path,
) -> None:
    orders = SlowOrders()

    async def run(task: TaskContext) -> str:
        orders.calls += [
            asyncio.ensure_future(  # noqa: TID251  the shop cancels and awaits them
                task.call_tool("shop/order", {"n": n, "item": "pears"})
            )
            for n in range(2)
        ]
        await orders.all_began.wait()
        orders.calls[0].cancel()
        await asyncio.wait(orders.calls[:1])
        return "too late"

    callees = MeshCallees(None, orders, ChildLimits(), None)  # type: ignore[arg-type]
    journal = open_journal(journal_path)
    try:
        async with (
            asyncio.timeout(30),
            TaskHost(journal, [replace(define(run), callees=callees)]) as host,
        ):
            accepted = await host.submit("tested", message(), NOTHING)
            assert isinstance(accepted, SubmitResult)
            ended = await host.wait_turn(accepted.task_id)
    finally:
        await journal.close()
    assert texts(ended) == ["too late"]
    assert sorted(orders.canceled) == ["1", "2"]
