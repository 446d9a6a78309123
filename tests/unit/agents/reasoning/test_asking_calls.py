"""Calls of one reply whose tools ask, and their recovery after the host dies."""

import asyncio
import json
from pathlib import Path

from harness.agents.inline_agents import NOTHING, message, status_texts
from harness.agents.shop import Orders, shop
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from trunkline.agents.calls.tool_source import OnProgress, OnTask
from trunkline.agents.reasoning.models import Model
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.testing import Call, ScriptedModel
from trunkline.v1 import tool_service_pb2


class CautiousOrders(Orders):
    """A shop that asks before each order. It asks about the first order last."""

    def __init__(self) -> None:
        super().__init__(needs_approval=False)
        self.may_ask_first = asyncio.Event()
        self.questions = 0

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        """Ask, or order."""
        if request.continuation.responses:
            return await super().call_tool(request, on_progress=on_progress, on_task=on_task)
        self.questions += 1
        if self.questions == 1:
            await self.may_ask_first.wait()
        requests = {"sure": {"params": {"message": "Are you sure?"}}}
        question = tool_service_pb2.ToolQuestion(requests=json.dumps(requests))
        return tool_service_pb2.ToolResult(question=question)


async def submit(host: TaskHost, text: str, task_id: str = "") -> str:
    sent = message(text, message_id=f"m-{text}", task_id=task_id)
    accepted = await host.submit("apples", sent, NOTHING)
    assert isinstance(accepted, SubmitResult)
    return accepted.task_id


async def test_a_call_that_waits_for_its_answer_is_not_taken_for_an_equal_one_that_was_cut(
    tmp_path: Path,
) -> None:
    orders = CautiousOrders()
    orders.go.clear()
    call = Call("apples__order", {"n": 1, "item": "apples"})
    model = Model.from_chat_model(ScriptedModel([call, call], "All is done."))
    agent = shop("apples", orders, model=model)
    host = TaskHost(open_journal(tmp_path / "journal.db"), [agent])
    await host.__aenter__()
    async with asyncio.timeout(30):
        task_id = await submit(host, "order as usual")
        while not any(
            made.HasField("finished") for made in (await host.journal.snapshot(task_id)).tool_calls
        ):
            await host.journal.wait(task_id, await host.journal.head(task_id))
        orders.may_ask_first.set()
        await host.wait_turn(task_id)
        # It answers the question of the second call, which asked first.
        await submit(host, "yes", task_id)
        await orders.began.wait()
        await kill_host(host)
    orders.go.set()
    journal = open_journal(tmp_path / "journal.db")
    async with TaskHost(journal, [agent]) as later, asyncio.timeout(30):
        waiting = await later.wait_turn(task_id)
    await journal.close()
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "Are you sure?" in status_texts(waiting)
    assert len(orders.orders) == 1
