"""Turns that wait for a person: asked once, answered once, however the answer comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.agents.inline_agents import NOTHING, OpenHost, define, finish, message
from harness.journal.host_death import wait_until_slots_free
from harness.mesh.recorded_spans import spans_in
from trunkline import telemetry
from trunkline.agents import FunctionAgent
from trunkline.errors import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    InvalidArgumentError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.journal import Journal
from trunkline.tasks import approvals
from trunkline.tasks.approvals import ApprovalDecision
from trunkline.tasks.context import TaskContext, get_turn_runtime
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import (
    event_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_service_pb2,
)

APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
EDITED = event_pb2.APPROVAL_DECISION_EDITED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED


class Shop:
    """An agent that orders what it is allowed to, and notes it."""

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


async def outcome(host: TaskHost, given: task_service_pb2.AnswerApprovalRequest) -> str:
    """Give an answer; return why it was refused, or nothing."""
    try:
        await host.answer_approval(given)
    except TrunklineError as error:
        return error.reason
    return ""


async def say(host: TaskHost, task: snapshot_pb2.TaskSnapshot, text: str) -> None:
    said = message(text, message_id=f"m-{text}", task_id=task.task.id)
    await host.submit("tested", said, NOTHING)


async def test_a_turn_that_waits_for_approval_asks_for_it_with_its_path(
    open_host: OpenHost,
) -> None:
    shop = Shop()
    task = await finish(await open_host(shop.agent))
    assert task.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    (asked,) = task.approvals
    assert asked.requested.approval_id == f"{task.task.id}.1"
    assert (asked.requested.tool, list(asked.requested.path)) == ("shop/order", ["tested"])
    text, data = task.task.status.message.parts
    assert text.text.startswith('tested: shop/order with {"n": 1} needs your approval')
    (said,) = data.data.struct_value.fields["approvals"].list_value.values
    assert said.struct_value.fields["approvalId"].string_value == asked.requested.approval_id
    assert shop.ordered == []


@pytest.mark.parametrize(
    ("said", "ordered"),
    [("approve", [1]), ("reject too dear", []), ('edit {"n": 7}', [7])],
)
async def test_the_next_message_answers(open_host: OpenHost, said: str, ordered: list[int]) -> None:
    shop = Shop()
    host = await open_host(shop.agent)
    task = await finish(host)
    await say(host, task, said)
    ended = await host.wait_turn(task.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert shop.ordered == ordered
    (known,) = ended.approvals
    assert known.answered.turn == 2


async def test_what_is_not_understood_is_asked_again(open_host: OpenHost) -> None:
    shop = Shop(2)
    host = await open_host(shop.agent)
    task = await finish(host)
    await say(host, task, "go ahead")
    again = await host.wait_turn(task.task.id)
    assert again.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert '"approve all"' in again.task.status.message.parts[0].text
    assert len(again.approvals) == 2
    await say(host, task, "approve 2")
    left = await host.wait_turn(task.task.id)
    assert shop.ordered == [2]
    assert [one.HasField("answered") for one in left.approvals] == [False, True]
    await say(host, task, "approve")
    assert (await host.wait_turn(task.task.id)).task.status.state == State.TASK_STATE_COMPLETED
    assert shop.ordered == [2, 1]


async def test_an_answer_by_call_opens_the_next_turn_once(open_host: OpenHost) -> None:
    shop = Shop()
    host = await open_host(shop.agent)
    task = await finish(host)
    async with asyncio.TaskGroup() as group:
        given = [group.create_task(host.answer_approval(answer(task))) for _ in range(8)]
    assert {one.result().answered.decision for one in given} == {APPROVED}
    ended = await host.wait_turn(task.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert (shop.ordered, ended.turn) == ([1], 2)
    assert ended.task.history[-1].message_id == f"approval-{task.task.id}.1"
    assert await host.answer_approval(answer(task)) == ended.approvals[0]
    with pytest.raises(ApprovalAnsweredError, match="it is approved"):
        await host.answer_approval(answer(task, decision=REJECTED))


async def test_of_contrary_answers_at_once_the_first_holds(open_host: OpenHost) -> None:
    shop = Shop()
    host = await open_host(shop.agent)
    task = await finish(host)
    both = [answer(task), answer(task, decision=REJECTED, reason="no")]
    async with asyncio.TaskGroup() as group:
        given = [group.create_task(outcome(host, one)) for one in both]
    assert [one.result() for one in given].count("APPROVAL_ANSWERED") == 1
    ended = await host.wait_turn(task.task.id)
    assert len(shop.ordered) == (ended.approvals[0].answered.decision == APPROVED)


async def test_answers_are_refused_that_nothing_waits_for(open_host: OpenHost) -> None:
    host = await open_host(Shop(2).agent)
    task = await finish(host)
    with pytest.raises(ApprovalNotFoundError):
        await host.answer_approval(answer(task, 3))
    with pytest.raises(TaskNotFoundError):
        await host.answer_approval(answer(task, account="somebody else"))
    with pytest.raises(InvalidArgumentError, match="arguments"):
        await host.answer_approval(answer(task, decision=EDITED))
    with pytest.raises(InvalidArgumentError, match="decision"):
        await host.answer_approval(answer(task, decision=event_pb2.APPROVAL_DECISION_UNSPECIFIED))
    wrong = message("", message_id="m-2", task_id=task.task.id)
    wrong.parts[0].data.struct_value.update({"approvalId": "other.1", "decision": "approve"})
    with pytest.raises(ApprovalNotFoundError):
        await host.submit("tested", wrong, NOTHING)
    await host.cancel(task.task.id, account="")
    with pytest.raises(TaskEndedError, match="canceled"):
        await host.answer_approval(answer(task))
    with pytest.raises(TaskEndedError, match="canceled"):
        await say(host, task, "approve")


async def test_a_deadline_withdraws_what_waits(open_host: OpenHost) -> None:
    host = await open_host(Shop().agent)
    fields = message_service_pb2.Submission()
    fields.deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=0.3))
    task = await finish(host, deadline=fields.deadline)
    async with asyncio.timeout(30):
        while not host.journal.row(task.task.id).is_ended:
            await host.journal.wait(task.task.id, host.journal.head(task.task.id))
    with pytest.raises(TaskEndedError, match="failed"):
        await host.answer_approval(answer(task))


async def test_data_of_an_answer_is_taken_whatever_the_agent_reads(open_host: OpenHost) -> None:
    shop = Shop()
    shop.agent = define(shop.order, input_modes=["text/plain"])
    host = await open_host(shop.agent)
    task = await finish(host)
    said = event_pb2.ApprovalAnswered(approval_id=f"{task.task.id}.1", decision=APPROVED)
    await host.submit(
        "tested",
        approvals.build_answer_message(
            [said], message_id="m-2", task_id=task.task.id, context_id=""
        ),
        NOTHING,
    )
    await host.wait_turn(task.task.id)
    assert shop.ordered == [1]


class Slow(Shop):
    """It asks, and then works on until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def order(self, task: TaskContext) -> str | None:
        done = await super().order(task)
        if done is None:
            self.asked.set()
            await self.go.wait()
        return done


async def test_an_answer_while_the_turn_runs_is_acted_on_by_the_next(open_host: OpenHost) -> None:
    shop = Slow()
    host = await open_host(shop.agent)
    accepted = await host.submit("tested", message(), NOTHING)
    await shop.asked.wait()
    assert isinstance(accepted, SubmitResult)
    task = await host.snapshot(accepted.task_id, account="")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        given = [group.create_task(host.answer_approval(answer(task))) for _ in range(3)]
        otherwise = group.create_task(outcome(host, answer(task, decision=REJECTED)))
    assert {one.result().answered.turn for one in given} == {2}
    assert otherwise.result() == "APPROVAL_ANSWERED"
    assert shop.ordered == []
    shop.go.set()
    async with asyncio.timeout(30):
        while not host.journal.row(task.task.id).is_ended:
            await host.journal.wait(task.task.id, host.journal.head(task.task.id))
    assert shop.ordered == [1]


@asynccontextmanager
async def life(path: Path, agent: FunctionAgent) -> AsyncIterator[TaskHost]:
    """A life of a host on a journal."""
    journal = Journal.open(path)
    try:
        async with TaskHost(journal, [agent]) as host:
            yield host
    finally:
        journal.close()


async def test_what_waits_is_answered_after_a_restart(journal_path: Path) -> None:
    shop = Shop(2)
    async with life(journal_path, shop.agent) as host:
        task = await finish(host)
    async with life(journal_path, shop.agent) as host:
        await host.answer_approval(answer(task, 2))
        await host.wait_turn(task.task.id)
    async with life(journal_path, shop.agent) as host:
        await host.answer_approval(answer(task, 1))
        ended = await host.wait_turn(task.task.id)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert shop.ordered == [2, 1]


async def test_an_answer_whose_turn_never_began_is_acted_on_by_the_next_life(
    journal_path: Path,
) -> None:
    shop = Shop()
    async with life(journal_path, shop.agent) as host:
        task = await finish(host)
        # As a host leaves it that dies between the end of a turn and the next one.
        said = event_pb2.ApprovalAnswered(
            approval_id=f"{task.task.id}.1", decision=APPROVED, turn=2
        )
        context = await host.primary._turns.load(task.task.id)
        await context._emitter.write_now(event_pb2.Event(approval_answered=said))
    async with life(journal_path, shop.agent) as host:
        async with asyncio.timeout(30):
            while not host.journal.row(task.task.id).is_ended:
                await host.journal.wait(task.task.id, host.journal.head(task.task.id))
    assert shop.ordered == [1]


async def test_spans_say_what_was_asked_and_what_was_answered(
    open_host: OpenHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        host = await open_host(Shop().agent)
        task = await finish(host)
        await say(host, task, "approve")
        await host.wait_turn(task.task.id)
        await wait_until_slots_free(host)
    asked, answered = (span.attributes or {} for span in memory.get_finished_spans())
    approval_id = f"{task.task.id}.1"
    assert asked[telemetry.APPROVALS_REQUESTED] == (approval_id,)
    assert telemetry.APPROVALS_ANSWERED not in asked
    assert answered[telemetry.APPROVALS_ANSWERED] == (approval_id,)
    assert telemetry.APPROVALS_REQUESTED not in answered
