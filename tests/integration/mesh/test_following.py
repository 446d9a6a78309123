"""A followed stream is complete, even if its connections break repeatedly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import define
from harness.mesh.small_mesh import PATIENCE_S, JoinedHost, SmallMesh, open_small_mesh
from trunkline.errors import (
    CursorExpiredError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.events import parse_header
from trunkline.mesh.client import ResumingStream
from trunkline.tasks.context import TaskContext
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import message_pb2, message_service_pb2, registry_service_pb2, task_pb2

NOTHING = message_service_pb2.Submission()


class Steps:
    """An agent that writes a number for each step of the test, and asks if its message says so."""

    def __init__(self) -> None:
        self.calls = 0
        self._orders: asyncio.Queue[int] = asyncio.Queue(100)

    def write(self, *numbers: int) -> None:
        for number in numbers:
            self._orders.put_nowait(number)

    async def __call__(self, task: TaskContext) -> None:
        self.calls += 1
        artifact = task.artifact("steps")
        while number := await self._orders.get():
            await artifact.append(f"{number} ")
        await artifact.close()
        if task.turn == 1 and task.text == "ask":
            await task.require_input("more?")


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    # The lease is long, so that a busy machine does not expire it.
    async with open_small_mesh(tmp_path, lease_s=30.0) as mesh:
        yield mesh


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
async def joined(mesh: SmallMesh, steps: Steps) -> JoinedHost:
    async def run(task: TaskContext) -> None:
        await steps(task)

    return await mesh.join(define(run))


async def read(stream: ResumingStream, *, until: int | None = None) -> list[int]:
    """Return the sequences of a stream, to its end or up to one."""
    sequences: list[int] = []
    async for batches in stream:
        for header in map(parse_header, batches):
            sequences += range(header.first_sequence, header.first_sequence + header.count)
        if until is not None and sequences[-1] >= until:
            break
    return sequences


async def head_of(mesh: SmallMesh, task_id: str) -> int:
    return (await mesh.get_task(task_id)).sequence


async def test_a_followed_task_is_complete_after_cut_connections(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    sequences: list[int] = []
    async with mesh.directory.watch(task_id, account="", after=0) as stream:
        for number in range(1, 4):
            steps.write(number)
            sequences += await read(stream, until=number + 2)
            assert stream.cursor[1] == sequences[-1]
            await joined.cut()
            steps.write(number + 10)
            await joined.serve_again()
            steps.write(number + 20)
        steps.write(0)
        sequences += await read(stream)
    assert sequences == list(range(1, await head_of(mesh, task_id) + 1))


async def test_a_followed_task_may_end_while_its_host_is_unreachable(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    async with mesh.directory.watch(task_id, account="", after=0, with_snapshot=True) as stream:
        assert stream.snapshot is not None
        assert stream.snapshot.sequence == 0
        await joined.cut()
        steps.write(1, 2, 0)
        await joined.host.wait_turn(task_id)
        await joined.serve_again()
        assert await read(stream) == list(range(1, await head_of(mesh, task_id) + 1))


async def test_a_follow_from_the_head_misses_nothing_before_its_first_read(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    first_sequence = await head_of(mesh, task_id)
    async with mesh.directory.watch(task_id, account="") as stream:
        await joined.cut()
        steps.write(1, 2, 3, 0)
        await joined.serve_again()
        sequences = await read(stream)
    assert sequences == list(range(first_sequence + 1, await head_of(mesh, task_id) + 1))


async def test_a_host_that_is_back_is_called_without_a_wait(
    mesh: SmallMesh, joined: JoinedHost
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    earlier = mesh.directory.client_for_task(task_id)
    await joined.cut()
    async with asyncio.timeout(PATIENCE_S):
        while "open" not in mesh.directory.breaker_states().values():
            with pytest.raises(PeerUnavailableError):
                await earlier.get_task(task_id, account="")
    await joined.serve_again()
    # Any update of the directory will do.
    revision = mesh.directory.revision
    await mesh.register(registry_service_pb2.Host(host_id="other", address="other.example:50051"))
    assert mesh.directory.revision > revision
    for client in (earlier, mesh.directory.client_for_task(task_id)):
        assert (await client.get_task(task_id, account="")).task.id == task_id
    assert list(mesh.directory.breaker_states().values()) == ["closed"]


async def test_an_invalid_request_is_not_retried(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    missing = f"{joined.host.journal.id}-nothing"
    with pytest.raises(TaskNotFoundError):
        async with mesh.directory.watch(missing, account=""):
            pass
    task_id = await mesh.begin("go", agent="tested")
    steps.write(1, 0)
    await joined.host.wait_turn(task_id)
    with pytest.raises(CursorExpiredError):
        async with mesh.directory.watch(task_id, account="", after=2, epoch=77):
            pass


async def test_a_submitted_turn_ends_at_its_question_after_a_cut(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    first = mesh.message("ask")
    async with mesh.directory.submit("tested", message=first, submission=NOTHING) as stream:
        await joined.cut()
        steps.write(1, 0)
        await joined.serve_again()
        assert await read(stream)
        task_id = stream.task_id
    waits = await mesh.get_task(task_id)
    assert waits.task.status.state == task_pb2.TASK_STATE_INPUT_REQUIRED
    answer = mesh.message("no", task_id=task_id)
    async with mesh.directory.submit("tested", message=answer, submission=NOTHING) as stream:
        await joined.cut()
        steps.write(2, 0)
        await joined.serve_again()
        await read(stream)
    assert (await mesh.get_task(task_id)).task.status.state == task_pb2.TASK_STATE_COMPLETED
    assert steps.calls == 2


async def test_a_followed_turn_ends_at_its_end_alone_after_a_cut(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("ask", agent="tested")
    steps.write(1, 0)
    await joined.host.wait_turn(task_id)
    question = await head_of(mesh, task_id)
    watch = mesh.directory.watch(task_id, account="", after=0, until_turn_ends=True)
    async with watch as stream:
        assert await read(stream) == list(range(1, question + 1))
    answer = mesh.message("no", task_id=task_id)
    async with mesh.directory.submit("tested", message=answer, submission=NOTHING):
        watch = mesh.directory.watch(task_id, account="", after=0, until_turn_ends=True)
        async with watch as stream:
            sequences = await read(stream, until=question)
            await joined.cut()
            steps.write(2, 0)
            await joined.serve_again()
            sequences += await read(stream)
    assert sequences == list(range(1, await head_of(mesh, task_id) + 1))


async def test_a_submission_that_is_sent_again_is_no_first_attempt(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host looks a first attempt up in memory only, so it could run the message twice."""
    submit = joined.host.submit
    attempts: list[tuple[str, bool]] = []

    async def refuse_two(
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        *,
        is_held: bool = False,
    ) -> SubmitResult | message_pb2.Message:
        attempts.append((submission.task_id, submission.is_first_attempt))
        if len(attempts) < 3:
            raise PeerUnavailableError("this host", "try again")
        return await submit(agent, message, submission, is_held=is_held)

    monkeypatch.setattr(joined.host, "submit", refuse_two)
    steps.write(0)
    async with mesh.directory.submit(
        "tested", message=mesh.message("go"), submission=NOTHING, patience_s=PATIENCE_S
    ) as stream:
        await read(stream)
    assert [is_first for _, is_first in attempts] == [True, False, False]
    assert {task_id for task_id, _ in attempts} == {stream.task_id}


@pytest.mark.parametrize("is_child", [False, True])
async def test_only_the_message_of_a_user_is_refused_at_once_while_a_journal_is_not_writable(
    mesh: SmallMesh,
    joined: JoinedHost,
    steps: Steps,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_child: bool,
) -> None:
    """A running task bears an outage of the store, so its calls of other agents do, too."""
    submit = joined.host.submit
    attempts = 0

    async def refuse_one(*args: Any, **options: Any) -> SubmitResult | message_pb2.Message:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise JournalUnavailableError("journal", "its lease has ended")
        return await submit(*args, **options)

    submission = message_service_pb2.Submission()
    if is_child:
        parent = await mesh.begin("go", agent="tested")
        submission.parent.task_id = parent
    monkeypatch.setattr(joined.host, "submit", refuse_one)
    refusal = nullcontext() if is_child else pytest.raises(JournalUnavailableError)
    with refusal:
        async with mesh.directory.submit(
            "tested", message=mesh.message("go"), submission=submission, patience_s=PATIENCE_S
        ) as stream:
            steps.write(0, 0)
            await read(stream)
    assert attempts == 1 + is_child
