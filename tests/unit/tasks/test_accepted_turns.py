"""A message has its place in the order of the turns before anyone is told that it was accepted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.agents.inline_agents import NOTHING, define, message
from harness.journal.opening import open_journal
from harness.polling import poll
from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import SqliteConversations, open_sqlite_memory
from trunkline.conversations.store import ConversationKey, Ticket, Turn
from trunkline.conversations.turn_order import LocalTurns, TurnOrder
from trunkline.errors import (
    JournalUnavailableError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.sqlite import SqliteCatalog
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import message_service_pb2, task_service_pb2

KEY = ConversationKey("tested", "c", "anonymous")
PATIENCE_S = 60.0


class HeldConversations(SqliteConversations):
    """Tickets in a file. Their taking waits until a test allows it, and fails if a test says so."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, journal="journal.db")
        self.is_asked = asyncio.Event()
        self.may_store = asyncio.Event()
        self.is_removing = asyncio.Event()
        self.error: JournalUnavailableError | None = None

    async def take_ticket(self, turn: Turn) -> Ticket:
        self.is_asked.set()
        await self.may_store.wait()
        if self.error is not None:
            raise self.error
        return await super().take_ticket(turn)

    async def remove_ticket(self, task_id: str, number: int) -> None:
        self.is_removing.set()
        if self.error is not None:
            raise self.error
        await super().remove_ticket(task_id, number)


async def answer_or_ask(task: TaskContext) -> str | None:
    if task.text == "ask" and task.turn == 1:
        await task.require_input("what?")
        return None
    return "done"


@asynccontextmanager
async def open_host(folder: Path) -> AsyncIterator[tuple[TaskHost, HeldConversations]]:
    journal = open_journal(folder / "journal.db")
    memory = await open_sqlite_memory(folder / "journal.db")
    held = HeldConversations(folder / "tickets")
    order = TurnOrder(held, LocalTurns())
    agent = replace(define(answer_or_ask), has_conversations=True)
    try:
        held_memory = AgentMemory(memory.checkpoints, held, order, memory.clean, memory.close)
        async with asyncio.timeout(PATIENCE_S):
            async with TaskHost(journal, [agent], memory=held_memory) as host:
                yield host, held
    finally:
        await journal.close()


async def count(host: TaskHost) -> int:
    return (await host.list(task_service_pb2.ListTasksRequest())).total_size


async def begin(
    host: TaskHost,
    text: str,
    submission: message_service_pb2.Submission = NOTHING,
    **fields: str,
) -> str:
    accepted = await host.submit("tested", message(text, context_id="c", **fields), submission)
    assert isinstance(accepted, SubmitResult)
    return accepted.task_id


async def test_a_task_exists_after_its_turn_has_a_ticket(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (host, held), asyncio.TaskGroup() as group:
        submit = group.create_task(begin(host, "hello"))
        await held.is_asked.wait()
        assert await count(host) == 0
        assert not submit.done()
        held.may_store.set()
        ended = await host.wait_turn(await submit)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        await until_no_tickets(held)


async def test_a_turn_of_a_task_begins_after_it_has_a_ticket(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (host, held), asyncio.TaskGroup() as group:
        held.may_store.set()
        task_id = await begin(host, "ask")
        await host.wait_turn(task_id)
        await until_no_tickets(held)
        held.may_store.clear()
        held.is_asked.clear()
        submit = group.create_task(begin(host, "this", message_id="m-2", task_id=task_id))
        await held.is_asked.wait()
        asked = await host.journal.snapshot(task_id)
        assert asked.turn == 1
        assert not submit.done()
        held.may_store.set()
        await submit
        ended = await host.wait_turn(task_id)
        assert (ended.turn, ended.task.status.state) == (2, State.TASK_STATE_COMPLETED)
        await until_no_tickets(held)


async def test_a_message_without_a_ticket_is_refused_and_makes_no_task(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (host, held):
        held.may_store.set()
        held.error = JournalUnavailableError("tickets", "the disk is full")
        with pytest.raises(JournalUnavailableError, match="the disk is full"):
            await begin(host, "hello")
        assert await count(host) == 0
        held.error = None
        ended = await host.wait_turn(await begin(host, "hello"))
        assert ended.task.status.state == State.TASK_STATE_COMPLETED


async def test_a_message_that_is_sent_again_leaves_no_ticket(tmp_path: Path) -> None:
    once = message_service_pb2.Submission(idempotent=True, caller="alice")
    async with open_host(tmp_path) as (host, held):
        held.may_store.set()
        task_id = await begin(host, "hello", once)
        await host.wait_turn(task_id)
        assert await begin(host, "hello", once) == task_id
        await until_no_tickets(held)


async def test_a_deadline_that_passes_before_the_ticket_is_stored_leaves_no_ticket(
    tmp_path: Path,
) -> None:
    submission = message_service_pb2.Submission()
    submission.deadline.FromDatetime(datetime.now(UTC) + timedelta(seconds=0.1))
    async with open_host(tmp_path) as (host, held):
        with pytest.raises(PeerTimeoutError):
            await begin(host, "hello", submission)
        held.may_store.set()
        # The ticket was stored late, and removed.
        assert await count(host) == 0
        ended = await host.wait_turn(await begin(host, "next"))
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        await until_no_tickets(held)


async def test_a_turn_that_is_tried_again_keeps_its_ticket(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, held):
        order = TurnOrder(held, LocalTurns())
        turn = Turn(KEY, "journal1-a", 1)
        held.may_store.set()
        held.error = JournalUnavailableError("tickets", "the database is away")
        with pytest.raises(JournalUnavailableError):
            await order.take_ticket(turn)
        removal = order.end_turn(turn.task_id)
        assert removal is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(removal)
            await held.is_removing.wait()
            held.error = None
            group.create_task(order.take_ticket(turn))
        assert [ticket.turn for ticket in await held.list_tickets(KEY)] == [turn]


async def test_a_cancel_of_a_message_that_waits_for_its_ticket_stops_it(tmp_path: Path) -> None:
    submission = message_service_pb2.Submission()
    async with open_host(tmp_path) as (host, held):
        submission.task_id = host.journal.new_task_id()
        async with asyncio.TaskGroup() as group:
            submit = group.create_task(begin(host, "hello", submission))
            await held.is_asked.wait()
            submit.cancel()
        with pytest.raises(TaskNotFoundError):
            await host.cancel(submission.task_id, account="anonymous")
        held.may_store.set()
        ended = await host.wait_turn(await begin(host, "next"))
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        assert await count(host) == 1
        await until_no_tickets(held)


async def test_an_answer_that_a_drain_stops_can_be_sent_again(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (host, held):
        held.may_store.set()
        task_id = await begin(host, "ask")
        await host.wait_turn(task_id)
        await until_no_tickets(held)
        held.may_store.clear()
        held.is_asked.clear()

        async def answer() -> None:
            with pytest.raises(PeerUnavailableError, match="shutting down"):
                await begin(host, "this", message_id="m-2", task_id=task_id)

        async with asyncio.TaskGroup() as group:
            group.create_task(answer())
            await held.is_asked.wait()
            await host.drain(0)
            held.may_store.set()


@pytest.mark.parametrize("is_away", [False, True])
async def test_a_journal_whose_tickets_could_not_be_removed_is_left_for_a_takeover(
    tmp_path: Path, is_away: bool
) -> None:
    async with open_host(tmp_path) as (host, held):
        held.may_store.set()
        task_id = await begin(host, "ask")
        await host.wait_turn(task_id)
        await until_no_tickets(held)
        await begin(host, "this", message_id="m-2", task_id=task_id)
        if is_away:
            held.error = JournalUnavailableError("tickets", "the database is away")
        await host.wait_turn(task_id)
    (orphan,) = await SqliteCatalog(tmp_path).find_orphans()
    assert orphan.was_released is not is_away


async def until_no_tickets(held: HeldConversations) -> None:
    """Wait until the tickets are removed, which follows the ends of the turns."""
    await poll(lambda: held.list_tickets(KEY), lambda tickets: not tickets)
