"""A followed stream is whole, however often the way to its host breaks."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.agents.inline_agents import define
from harness.mesh.small_mesh import JoinedHost, SmallMesh, open_small_mesh
from trunkline.client import ResumingStream
from trunkline.errors import CursorExpiredError, PeerUnavailableError, TaskNotFoundError
from trunkline.journal.events import parse_header
from trunkline.tasks.context import TaskContext
from trunkline.v1 import message_service_pb2, task_pb2

NOTHING = message_service_pb2.Submission()


class Steps:
    """An agent that writes a number whenever it is told to, and asks where its message says so."""

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
    # Nobody dies here: a busy machine is not to take hosts for dead.
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
    """The sequences that come, to the end or up to one."""
    found: list[int] = []
    async for batches in stream:
        for header in map(parse_header, batches):
            found += range(header.first_sequence, header.first_sequence + header.count)
        if until is not None and found[-1] >= until:
            break
    return found


async def head_of(mesh: SmallMesh, task_id: str) -> int:
    return (await mesh.look(task_id)).sequence


async def test_a_followed_task_is_whole_behind_cut_connections(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    found: list[int] = []
    async with mesh.directory.watch(task_id, account="", after=0) as stream:
        for number in range(1, 4):
            steps.write(number)
            found += await read(stream, until=number + 2)
            assert stream.cursor[1] == found[-1]
            await joined.cut()
            steps.write(number + 10)
            await joined.serve_again()
            steps.write(number + 20)
        steps.write(0)
        found += await read(stream)
    assert found == list(range(1, await head_of(mesh, task_id) + 1))


async def test_a_followed_task_may_end_while_its_host_is_away(
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


async def test_from_the_head_on_nothing_is_missed_although_nothing_was_read(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    begun = await head_of(mesh, task_id)
    async with mesh.directory.watch(task_id, account="") as stream:
        await joined.cut()
        steps.write(1, 2, 3, 0)
        await joined.serve_again()
        found = await read(stream)
    assert found == list(range(begun + 1, await head_of(mesh, task_id) + 1))


async def test_a_host_that_stays_away_is_given_up_behind_the_patience(
    mesh: SmallMesh, joined: JoinedHost
) -> None:
    task_id = await mesh.begin("go", agent="tested")
    async with mesh.directory.watch(task_id, account="", patience_s=0.3) as stream:
        await joined.cut()
        with pytest.raises(PeerUnavailableError):
            await read(stream)


async def test_what_is_wrong_with_the_request_is_no_cut(
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


async def test_a_begun_turn_ends_at_its_question_also_behind_a_cut(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    first = mesh.message("ask")
    async with mesh.directory.submit("tested", message=first, submission=NOTHING) as stream:
        await joined.cut()
        steps.write(1, 0)
        await joined.serve_again()
        assert await read(stream)
        task_id = stream.task_id
    waits = await mesh.look(task_id)
    assert waits.task.status.state == task_pb2.TASK_STATE_INPUT_REQUIRED
    answer = mesh.message("no", task_id=task_id)
    async with mesh.directory.submit("tested", message=answer, submission=NOTHING) as stream:
        await joined.cut()
        steps.write(2, 0)
        await joined.serve_again()
        await read(stream)
    assert (await mesh.look(task_id)).task.status.state == task_pb2.TASK_STATE_COMPLETED
    assert steps.calls == 2


async def test_a_message_for_a_host_that_is_away_arrives_once_it_is_back(
    mesh: SmallMesh, joined: JoinedHost, steps: Steps
) -> None:
    await joined.cut()
    steps.write(1, 0)

    async def give() -> str:
        message = mesh.message("go")
        async with mesh.directory.submit("tested", message=message, submission=NOTHING) as stream:
            await read(stream)
            return stream.task_id

    async with asyncio.TaskGroup() as group:
        giving = group.create_task(give())
        await joined.serve_again()
    assert (await mesh.look(giving.result())).task.status.state == task_pb2.TASK_STATE_COMPLETED
    assert steps.calls == 1
