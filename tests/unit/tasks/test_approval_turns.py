"""Turns that wait for approval ask once and are answered once, by message or by call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message, start
from harness.journal.host_death import wait_until_slots_free
from harness.journal.opening import open_journal
from harness.mesh.recorded_spans import spans_in
from trunkline.agents import FunctionAgent
from trunkline.core.json_values import update_struct
from trunkline.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    InvalidArgumentError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.events import build_draft
from trunkline.observe import telemetry
from trunkline.tasks import approvals
from trunkline.tasks.approvals import ApprovalDecision
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import (
    event_pb2,
    snapshot_pb2,
    task_service_pb2,
)

APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
EDITED = event_pb2.APPROVAL_DECISION_EDITED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED


class Shop:
    """An agent that makes the approved orders and records them."""

    def __init__(self, items: int = 1) -> None:
        self.ordered: list[int] = []
        self.items = items
        self.agent = define(self.order)

    async def order(self, task: TaskContext) -> str | None:
        answers = [
            await task.request_approval("shop/order", {"n": number})
            for number in range(1, self.items + 1)
        ]
        for number, answer in enumerate(answers, start=1):
            if (
                answer is not None
                and answer.turn == task.turn
                and answer.decision != ApprovalDecision.REJECTED
            ):
                is_edited = answer.decision == ApprovalDecision.EDITED
                self.ordered.append(answer.arguments["n"] if is_edited else number)
        is_waiting = get_turn_runtime(task).pending_approvals.is_waiting
        return None if is_waiting else f"Ordered {self.ordered}."


def answer(
    task: snapshot_pb2.TaskSnapshot, number: int = 1, **fields: Any
) -> task_service_pb2.AnswerApprovalRequest:
    fields.setdefault("decision", APPROVED)
    return task_service_pb2.AnswerApprovalRequest(
        task_id=task.task.id, approval_id=f"{task.task.id}.{number}", **fields
    )


async def get_refusal(host: TaskHost, answer_tasks: task_service_pb2.AnswerApprovalRequest) -> str:
    """Send an answer; return the reason of its refusal, or an empty text."""
    try:
        await host.answer_approval(answer_tasks)
    except TrunklineError as error:
        return error.reason
    return ""


async def send_text(host: TaskHost, task: snapshot_pb2.TaskSnapshot, text: str) -> None:
    answer_event = message(text, message_id=f"m-{text}", task_id=task.task.id)
    await host.submit("tested", answer_event, NOTHING)


async def test_an_unclear_answer_is_asked_again(open_host: OpenHost) -> None:
    shop = Shop(2)
    host = await open_host(shop.agent)
    task = await finish(host)
    await send_text(host, task, "go ahead")
    repeated = await host.wait_turn(task.task.id)
    assert repeated.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert '"approve all"' in repeated.task.status.message.parts[0].text
    assert len(repeated.approvals) == 2
    await send_text(host, task, "approve 2")
    remaining = await host.wait_turn(task.task.id)
    assert shop.ordered == [2]
    assert [approval.HasField("answered") for approval in remaining.approvals] == [False, True]
    await send_text(host, task, "approve")
    assert (await host.wait_turn(task.task.id)).task.status.state == State.TASK_STATE_COMPLETED
    assert shop.ordered == [2, 1]


async def test_an_answer_by_call_starts_the_next_turn_once(open_host: OpenHost) -> None:
    shop = Shop()
    host = await open_host(shop.agent)
    task = await finish(host)
    async with asyncio.TaskGroup() as group:
        answer_tasks = [group.create_task(host.answer_approval(answer(task))) for _ in range(8)]
    assert {answer_task.result().answered.decision for answer_task in answer_tasks} == {APPROVED}
    ended = await host.wait_turn(task.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert (shop.ordered, ended.turn) == ([1], 2)
    assert ended.task.history[-1].message_id == f"approval-{task.task.id}.1"
    assert await host.answer_approval(answer(task)) == ended.approvals[0]
    with pytest.raises(ApprovalAnsweredError, match="it is approved"):
        await host.answer_approval(answer(task, decision=REJECTED))


async def test_an_answer_without_a_matching_approval_is_refused(open_host: OpenHost) -> None:
    host = await open_host(Shop(2).agent)
    task = await finish(host)
    with pytest.raises(ApprovalNotFoundError):
        await host.answer_approval(answer(task, 3))
    with pytest.raises(TaskNotFoundError):
        await host.answer_approval(answer(task, account="other"))
    with pytest.raises(InvalidArgumentError, match="arguments"):
        await host.answer_approval(answer(task, decision=EDITED))
    with pytest.raises(InvalidArgumentError, match="decision"):
        await host.answer_approval(answer(task, decision=event_pb2.APPROVAL_DECISION_UNSPECIFIED))
    wrong = message("", message_id="m-2", task_id=task.task.id)
    update_struct(
        wrong.parts[0].data.struct_value, {"approvalId": "other.1", "decision": "approve"}
    )
    with pytest.raises(ApprovalNotFoundError):
        await host.submit("tested", wrong, NOTHING)
    await host.cancel(task.task.id, account="")
    with pytest.raises(TaskEndedError, match="canceled"):
        await host.answer_approval(answer(task))
    with pytest.raises(TaskEndedError, match="canceled"):
        await send_text(host, task, "approve")


async def test_data_of_an_answer_is_accepted_for_any_input_modes(open_host: OpenHost) -> None:
    shop = Shop()
    shop.agent = define(shop.order, input_modes=["text/plain"])
    host = await open_host(shop.agent)
    task = await finish(host)
    answer_event = event_pb2.ApprovalAnswered(approval_id=f"{task.task.id}.1", decision=APPROVED)
    await host.submit(
        "tested",
        approvals.build_answer_message(
            [answer_event], message_id="m-2", task_id=task.task.id, context_id=""
        ),
        NOTHING,
    )
    await host.wait_turn(task.task.id)
    assert shop.ordered == [1]


class Slow(Shop):
    """Requests approval, then keeps running until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.requested = asyncio.Event()
        self.released = asyncio.Event()

    async def order(self, task: TaskContext) -> str | None:
        result = await super().order(task)
        if result is None:
            self.requested.set()
            await self.released.wait()
        return result


async def test_an_answer_during_a_turn_is_handled_by_the_next_turn(open_host: OpenHost) -> None:
    shop = Slow()
    host = await open_host(shop.agent)
    task_id = await start(host)
    await shop.requested.wait()
    task = await host.snapshot(task_id, account="")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        answer_tasks = [group.create_task(host.answer_approval(answer(task))) for _ in range(3)]
        refusal_task = group.create_task(get_refusal(host, answer(task, decision=REJECTED)))
    assert {answer_task.result().answered.turn for answer_task in answer_tasks} == {2}
    assert refusal_task.result() == "APPROVAL_ANSWERED"
    assert shop.ordered == []
    shop.released.set()
    async with asyncio.timeout(30):
        while not (await host.journal.row(task.task.id)).is_ended:
            await host.journal.wait(task.task.id, await host.journal.head(task.task.id))
    assert shop.ordered == [1]


@asynccontextmanager
async def open_host_process(path: Path, agent: FunctionAgent) -> AsyncIterator[TaskHost]:
    """Open a host on a journal for the lifetime of one process."""
    journal = open_journal(path)
    try:
        async with TaskHost(journal, [agent]) as host:
            yield host
    finally:
        await journal.close()


async def test_an_answer_whose_turn_never_started_is_handled_after_a_restart(
    journal_path: Path,
) -> None:
    shop = Shop()
    async with open_host_process(journal_path, shop.agent) as host:
        task = await finish(host)
        # The state after a host dies between the end of a turn and the next one.
        answer_event = event_pb2.ApprovalAnswered(
            approval_id=f"{task.task.id}.1", decision=APPROVED, turn=2
        )
        draft = build_draft([event_pb2.Event(approval_answered=answer_event)])
        await host.journal.append(task.task.id, host.journal.epoch, [draft])
    async with open_host_process(journal_path, shop.agent) as host:
        async with asyncio.timeout(30):
            while not (await host.journal.row(task.task.id)).is_ended:
                await host.journal.wait(task.task.id, await host.journal.head(task.task.id))
    assert shop.ordered == [1]


async def test_spans_record_requested_and_answered_approvals(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        host = await open_host(Shop().agent)
        task = await finish(host)
        await send_text(host, task, "approve")
        await host.wait_turn(task.task.id)
        await wait_until_slots_free(host)
    approval, answered = (span.attributes or {} for span in memory.get_finished_spans())
    approval_id = f"{task.task.id}.1"
    assert approval[telemetry.APPROVALS_REQUESTED] == (approval_id,)
    assert telemetry.APPROVALS_ANSWERED not in approval
    assert answered[telemetry.APPROVALS_ANSWERED] == (approval_id,)
    assert telemetry.APPROVALS_REQUESTED not in answered
