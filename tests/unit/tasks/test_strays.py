"""Children whose host can't be reached when their parent ends are canceled once it can."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from harness.agents.inline_agents import OpenHost, define, message
from harness.journal.host_death import kill_host, wait_until_slots_free
from trunkline.errors import (
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal.journal import Journal
from trunkline.tasks.context import TaskContext, get_turn_runtime
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import event_pb2, message_service_pb2

AWAY = PeerUnavailableError("its host", "it is away")
PATIENCE_S = 30.0


class Children:
    """Hosts of children, as far as they can be reached."""

    def __init__(self, *answers: TrunklineError | None) -> None:
        """What whoever cancels a child hears, try by try; the last answer stands."""
        self._answers = list(answers)
        self.asked: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    async def cancel(self, task_id: str, account: str) -> None:
        """Cancel a child, or say why not."""
        self.asked.append((task_id, account))
        self.news.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer


async def calls_children(task: TaskContext) -> None:
    """Call a child; wait for it, or end as the message says."""
    started = event_pb2.ChildStarted(task_id="c-1", agent="math")
    await get_turn_runtime(task).record(event_pb2.Event(child_started=started))
    if task.text == "finish":
        state = event_pb2.ChildFinished(
            task_id="c-1", agent="math", state=State.TASK_STATE_COMPLETED
        )
        await get_turn_runtime(task).record(event_pb2.Event(child_finished=state))
    if task.text == "wait":
        await asyncio.Event().wait()


PARENT = define(calls_children)


async def until(is_so: Callable[[], bool]) -> None:
    """Look again and again."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  the journal is looked at
            await asyncio.sleep(0.01)


async def begin(host: TaskHost, text: str) -> str:
    submission = message_service_pb2.Submission(account="acme")
    accepted = await host.submit("tested", message(text), submission)
    assert isinstance(accepted, SubmitResult)
    return accepted.task_id


def has_none(journal: Journal) -> bool:
    return not journal.list_orphaned_children()


async def test_a_child_that_could_not_be_reached_is_canceled_when_it_can(
    open_host: OpenHost,
) -> None:
    children = Children(AWAY, AWAY, PeerTimeoutError("its host", "too slow"), None)
    host = await open_host(PARENT, cancel_child=children.cancel)
    task_id = await begin(host, "wait")
    await until(lambda: host.journal.head(task_id) > 2)
    await host.cancel(task_id, account="acme")
    assert [stray.task_id for stray in host.journal.list_orphaned_children()] == ["c-1"]
    await until(lambda: has_none(host.journal))
    assert children.asked == [("c-1", "acme")] * 4


async def test_a_child_that_its_parent_s_code_left_behind_is_canceled(open_host: OpenHost) -> None:
    children = Children(TaskNotCancelableError("c-1", "completed"))
    host = await open_host(PARENT, cancel_child=children.cancel)
    await host.wait_turn(await begin(host, "leave it"))
    async with asyncio.timeout(PATIENCE_S):
        await children.news.wait()
    await until(lambda: has_none(host.journal))
    assert children.asked == [("c-1", "acme")]


async def test_a_child_that_has_ended_or_never_was_is_no_stray(open_host: OpenHost) -> None:
    children = Children(TaskNotFoundError("c-1"))
    host = await open_host(PARENT, cancel_child=children.cancel)
    await begin(host, "finish")
    await wait_until_slots_free(host)
    assert has_none(host.journal)
    task_id = await begin(host, "wait")
    await until(lambda: host.journal.head(task_id) > 2)
    await host.cancel(task_id, account="acme")
    assert has_none(host.journal)
    assert children.asked == [("c-1", "acme")]


async def test_a_later_life_of_the_host_goes_on_with_it(open_host: OpenHost) -> None:
    away = Children(AWAY)
    host = await open_host(PARENT, cancel_child=away.cancel)
    task_id = await begin(host, "wait")
    await until(lambda: host.journal.head(task_id) > 2)
    await host.cancel(task_id, account="acme")
    await kill_host(host)
    back = Children(None)
    again = await open_host(PARENT, cancel_child=back.cancel)
    await until(lambda: has_none(again.journal))
    assert back.asked == [("c-1", "acme")]


async def test_a_child_is_not_minded_beyond_its_deadline(open_host: OpenHost) -> None:
    children = Children(AWAY)
    host = await open_host(PARENT, cancel_child=children.cancel)
    deadline = datetime.now(UTC) + timedelta(seconds=0.3)
    submission = message_service_pb2.Submission(account="acme")
    submission.deadline.FromDatetime(deadline)
    accepted = await host.submit("tested", message("leave it"), submission)
    assert isinstance(accepted, SubmitResult)
    await wait_until_slots_free(host)
    await until(lambda: has_none(host.journal))
    assert datetime.now(UTC) >= deadline
