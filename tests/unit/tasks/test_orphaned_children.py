"""Children that can't be reached at the end of their parent are canceled later."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from harness.agents.inline_agents import OpenHost, define, start
from harness.journal.host_death import kill_host, wait_until_slots_free
from harness.polling import poll, wait_for
from trunkline.core.users import User, current_statement, current_user
from trunkline.errors import (
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
    UserNotProvenError,
)
from trunkline.journal.journal import Journal
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.tasks.turn_runtime import get_turn_runtime
from trunkline.v1 import event_pb2

UNREACHABLE = PeerUnavailableError("its host", "it is away")
TIMEOUT_S = 300.0


class Children:
    """Hosts of children with scripted reachability."""

    def __init__(self, *answers: TrunklineError | None) -> None:
        """Set the results of the cancels, one for each attempt; the last one repeats."""
        self._answers = list(answers)
        self.cancels: list[tuple[str, str]] = []
        self.statements: set[str] = set()
        self.is_called = asyncio.Event()

    async def cancel(self, task_id: str, account: str) -> None:
        """Cancel a child, or raise the scripted error."""
        self.cancels.append((task_id, account))
        self.statements.add(current_statement())
        self.is_called.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer


async def call_child(task: TaskContext) -> None:
    """Call a child; then wait, finish it or leave it running, by the message's text."""
    started = event_pb2.ChildStarted(task_id="c-1", agent="math")
    await get_turn_runtime(task).record(event_pb2.Event(child_started=started))
    if task.text == "finish":
        state = event_pb2.ChildFinished(
            task_id="c-1", agent="math", state=State.TASK_STATE_COMPLETED
        )
        await get_turn_runtime(task).record(event_pb2.Event(child_finished=state))
    if task.text == "wait":
        await asyncio.Event().wait()


PARENT = define(call_child)


async def has_no_orphans(journal: Journal) -> bool:
    return not await journal.list_orphaned_children()


async def wait_until_called(journal: Journal, task_id: str) -> None:
    """Wait until a task has called its child."""
    async with asyncio.timeout(TIMEOUT_S):
        await journal.wait(task_id, 2)


async def wait_for_no_orphans(journal: Journal) -> None:
    await poll(partial(has_no_orphans, journal))


async def test_an_unreachable_child_is_canceled_once_it_is_reachable(
    open_host: OpenHost,
) -> None:
    children = Children(UNREACHABLE, UNREACHABLE, PeerTimeoutError("its host", "too slow"), None)
    host = await open_host(PARENT, cancel_child=children.cancel)
    task_id = await start(host, "wait", account="acme")
    await wait_until_called(host.journal, task_id)
    await host.cancel(task_id, account="acme")
    assert [orphan.task_id for orphan in await host.journal.list_orphaned_children()] == ["c-1"]
    await wait_for_no_orphans(host.journal)
    assert children.cancels == [("c-1", "acme")] * 4


async def test_an_ended_or_unknown_child_is_not_orphaned(open_host: OpenHost) -> None:
    children = Children(TaskNotFoundError("c-1"))
    host = await open_host(PARENT, cancel_child=children.cancel)
    await start(host, "finish", account="acme")
    await wait_until_slots_free(host)
    assert await has_no_orphans(host.journal)
    task_id = await start(host, "wait", account="acme")
    await wait_until_called(host.journal, task_id)
    await host.cancel(task_id, account="acme")
    assert await has_no_orphans(host.journal)
    assert children.cancels == [("c-1", "acme")]


async def test_orphans_are_canceled_after_a_restart(open_host: OpenHost) -> None:
    unreachable = Children(UNREACHABLE)
    host = await open_host(PARENT, cancel_child=unreachable.cancel)
    user = current_user.set(User("acme", "alice", statement="of alice"))
    task_id = await start(host, "wait", account="acme")
    current_user.reset(user)
    await wait_until_called(host.journal, task_id)
    await host.cancel(task_id, account="acme")
    await kill_host(host)
    reachable = Children(None)
    reopened = await open_host(PARENT, cancel_child=reachable.cancel)
    await wait_for_no_orphans(reopened.journal)
    assert reachable.cancels == [("c-1", "acme")]
    # The statement of the user is stored: a process that joined the mesh has no other proof.
    assert unreachable.statements == reachable.statements == {"of alice"}


async def test_an_orphan_is_dropped_if_the_statement_of_its_user_has_ended(
    open_host: OpenHost, caplog: pytest.LogCaptureFixture
) -> None:
    children = Children(UNREACHABLE, UserNotProvenError("it has ended"))
    host = await open_host(PARENT, cancel_child=children.cancel)
    await host.wait_turn(await start(host, "leave", account="acme"))
    await wait_for(lambda: len(children.cancels) == 2)
    await wait_for_no_orphans(host.journal)
    (warning,) = [vars(record) for record in caplog.records if record.msg == "child.not_canceled"]
    assert (warning["task_id"], warning["reason"]) == ("c-1", "USER_NOT_PROVEN")


async def test_an_orphan_is_dropped_after_its_deadline(open_host: OpenHost) -> None:
    children = Children(UNREACHABLE)
    host = await open_host(PARENT, cancel_child=children.cancel)
    deadline = datetime.now(UTC) + timedelta(seconds=0.3)
    await start(host, "leave", account="acme", deadline=deadline)
    await wait_until_slots_free(host)
    await wait_for_no_orphans(host.journal)
    assert datetime.now(UTC) >= deadline


async def test_a_child_that_can_not_be_reached_delays_no_other(open_host: OpenHost) -> None:
    called, is_first_left = asyncio.Event(), []

    async def cancel(task_id: str, _account: str) -> None:
        if task_id == "c-1" and not called.is_set():
            try:
                await asyncio.Event().wait()
            finally:
                is_first_left.append(called.is_set())
        if task_id == "c-2":
            called.set()

    async def call(task: TaskContext) -> None:
        started = event_pb2.ChildStarted(task_id=task.text, agent="math")
        await get_turn_runtime(task).record(event_pb2.Event(child_started=started))

    host = await open_host(define(call), cancel_child=cancel)
    await host.wait_turn(await start(host, "c-1", account="acme"))
    await host.wait_turn(await start(host, "c-2", account="acme"))
    async with asyncio.timeout(TIMEOUT_S):
        await called.wait()
    await wait_for_no_orphans(host.journal)
    assert is_first_left == [True]
