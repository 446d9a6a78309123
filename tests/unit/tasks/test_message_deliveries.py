"""A message between agents is a task of its recipient; one that ends at once costs one commit."""

import asyncio

import pytest

from harness.agents.inline_agents import OpenHost, define
from harness.journal.full_disk import full_disk
from harness.journal.host_death import kill_host
from harness.polling import poll
from trunkline.agents import agent
from trunkline.core.json_values import update_struct
from trunkline.errors import AgentNotFoundError, JournalUnavailableError
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import parse_header
from trunkline.journal.journal import Journal
from trunkline.tasks.context import TaskContext
from trunkline.tasks.delivered_messages import DeliveryResult, find_delivered
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.v1 import envelope_pb2, event_pb2, message_service_pb2

NOTE = envelope_pb2.Envelope(
    envelope_id="note-1",
    correlation_id="book",
    sender="editor",
    recipient="tested",
    type="note",
    text="write",
)
update_struct(NOTE.metadata, {"page": 3})


async def deliver(host: TaskHost, task_id: str) -> asyncio.Future[DeliveryResult]:
    submission = message_service_pb2.Submission(task_id=task_id, caller="ann")
    return await host.deliver("tested", NOTE, submission)


async def events(journal: Journal, task_id: str) -> list[event_pb2.Event]:
    return [
        event for sealed in await journal.read(task_id, 0) for event in parse_batch(sealed).events
    ]


async def test_tasks_that_end_at_once_are_one_commit_and_complete(open_host: OpenHost) -> None:
    async def handle(task: TaskContext) -> None:
        return None

    host = await open_host(define(handle))
    # The first task of a journal is written at once: journals without tasks are removed.
    first = host.journal.new_task_id()
    result = await deliver(host, first)
    assert await host.journal.find(first) is None
    await result
    assert host.journal.has_tasks
    task_ids = [host.journal.new_task_id() for _ in range(10)]
    results = [await deliver(host, task_id) for task_id in task_ids]
    assert {(await result).state for result in results} == {State.TASK_STATE_COMPLETED}
    # The batches of one commit have one time.
    headers = [
        parse_header(batch) for each in task_ids for batch in await host.journal.read(each, 0)
    ]
    assert len({header.time.ToNanoseconds() for header in headers}) == 1
    for task_id in task_ids:
        kinds = [event.WhichOneof("event") for event in await events(host.journal, task_id)]
        assert kinds == ["created", "status"]
        assert find_delivered(await host.journal.snapshot(task_id)) == NOTE


async def test_a_repeated_delivery_finds_its_task_and_calls_no_handler_again(
    open_host: OpenHost,
) -> None:
    calls = 0
    proceed = asyncio.Event()

    async def handle(task: TaskContext) -> str:
        nonlocal calls
        calls += 1
        await proceed.wait()
        return "done"

    host = await open_host(define(handle))
    task_id = host.journal.new_task_id()
    first, second = await deliver(host, task_id), await deliver(host, task_id)
    proceed.set()
    for result in (first, second, await deliver(host, task_id)):
        (reply,) = (await result).replies
        assert (reply.type, reply.text) == ("answer", "done")
    assert calls == 1
    await kill_host(host)
    # What the journal has is the result, also on a host without the agent.
    heir = await open_host(agent(name="other", description="Under test.")(handle))
    assert (await (await deliver(heir, task_id))).state == State.TASK_STATE_COMPLETED
    with pytest.raises(AgentNotFoundError):
        await deliver(heir, heir.journal.new_task_id())
    assert calls == 1


async def test_what_a_handler_writes_is_written_behind_its_beginning(open_host: OpenHost) -> None:
    written = asyncio.Event()

    async def handle(task: TaskContext) -> None:
        await task.working("on it")
        written.set()
        await asyncio.Event().wait()

    host = await open_host(define(handle, repeatable=True))
    task_id = host.journal.new_task_id()
    result = await deliver(host, task_id)
    await written.wait()
    assert (await host.journal.row(task_id)).head == 2
    await host.cancel(task_id, account="", reason="enough")
    assert (await result).problem == "enough"


async def test_a_full_disk_fails_the_delivery_and_leaves_no_task(open_host: OpenHost) -> None:
    async def handle(task: TaskContext) -> None:
        return None

    host = await open_host(define(handle))
    await (await deliver(host, host.journal.new_task_id()))
    task_id = host.journal.new_task_id()
    with full_disk():
        result = await deliver(host, task_id)
        with pytest.raises(JournalUnavailableError):
            await result
        assert await host.journal.find(task_id) is None

    async def is_delivered() -> bool:
        try:
            result = await (await deliver(host, task_id))
        except JournalUnavailableError:
            return False
        return result.state == State.TASK_STATE_COMPLETED

    await poll(is_delivered)
