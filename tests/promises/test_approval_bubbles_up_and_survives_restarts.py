"""Promise 8: approvals bubble up and survive restarts; an approved call is made exactly once."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pytest

from harness.a2a.sse_client import call, user_message
from harness.mcp.bundled_servers import only_servers
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import MeshProcess, Services, running_mesh, running_services
from harness.promise_scale import PromiseScale
from trunkline.errors import PeerError, TaskNotFoundError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.v1 import event_pb2, snapshot_pb2, task_service_pb2

SERVER: Final = Path(__file__).parents[1] / "harness" / "mcp" / "shop_server.py"
FRUIT: Final = ("apples", "pears")
PATIENCE_S: Final = 300.0
POLL_S: Final = 0.02
UNKNOWN: Final = "it is unknown whether it took effect"
APPROVED = event_pb2.APPROVAL_DECISION_APPROVED
REJECTED = event_pb2.APPROVAL_DECISION_REJECTED


def mcp_file(folder: Path) -> Path:
    """Configure two shops whose orders need approval, as their annotations declare."""
    servers = {
        name: {
            "command": sys.executable,
            "args": [str(SERVER)],
            "env": {"SHOP_FOLDER": str(folder)},
            "trunkline": {"agent": {"tags": [name]}},
        }
        for name in FRUIT
    }
    return Path(only_servers(folder, own=servers)["TRUNKLINE_MCP_FILE"])


class Mesh(Protocol):
    """A mesh of processes that a test stops and restarts."""

    @property
    def address(self) -> str:
        """The address of its registry."""

    @property
    def url(self) -> str:
        """The URL of its bridge."""

    async def start(self) -> None:
        """Start it, or restart it."""

    async def stop(self, kill_signal: signal.Signals) -> None:
        """End all of its processes with a signal."""


class OneProcess:
    """`trunkline up`."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._life: MeshProcess | None = None

    @property
    def address(self) -> str:
        assert self._life is not None
        return self._life.mesh_address

    @property
    def url(self) -> str:
        assert self._life is not None
        return self._life.http_url

    async def start(self) -> None:
        opening = running_mesh(
            self._folder,
            "--mcp",
            str(mcp_file(self._folder)),
            environment={"TRUNKLINE_LEASE_S": "3"},
        )
        self._life = await self._stack.enter_async_context(opening)

    async def stop(self, kill_signal: signal.Signals) -> None:
        assert self._life is not None
        os.killpg(self._life.process.pid, kill_signal)
        await self._life.process.wait()


class OneServiceEach:
    """Registry, bridge, tool adapter and each agent in separate processes."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._services: Services | None = None

    @property
    def address(self) -> str:
        assert self._services is not None
        return self._services.mesh_address

    @property
    def url(self) -> str:
        assert self._services is not None
        return self._services.http_url

    async def start(self) -> None:
        if self._services is None:
            opening = running_services(
                self._folder,
                "--mcp",
                str(mcp_file(self._folder)),
                agents=("supervisor", *FRUIT),
                # Every process is back before another host's takeover begins.
                environment={"TRUNKLINE_LEASE_S": "60"},
            )
            self._services = await self._stack.enter_async_context(opening)
            return
        names = list(self._services.processes)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._services.restart(name))

    async def stop(self, kill_signal: signal.Signals) -> None:
        assert self._services is not None
        processes = list(self._services.processes.values())
        for process in processes:
            process.send_signal(kill_signal)
        for process in processes:
            await process.wait()


@dataclass
class Person:
    """A user who requests orders and approves them while the mesh dies and restarts."""

    mesh: Mesh

    @asynccontextmanager
    async def directory(self) -> AsyncIterator[Directory]:
        async with (
            ChannelPool(mesh_credentials()) as channels,
            Directory(channels, self.mesh.address) as directory,
        ):
            yield directory

    async def ask(self, text: str, task_id: str = "") -> str:
        """Send a message over A2A; return the task's id."""
        message = user_message(text)
        if task_id:
            message["taskId"] = task_id
        answer = await call(self.mesh.url, "/", "SendMessage", {"message": message})
        task: str = answer["result"]["task"]["id"]
        return task

    async def until(
        self, task_id: str, is_true: Callable[[snapshot_pb2.TaskSnapshot], bool]
    ) -> snapshot_pb2.TaskSnapshot:
        """Poll a task until the predicate is true."""
        async with self.directory() as directory, asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    task = await directory.client_for_task(task_id).get_task(task_id, account="")
                except (PeerError, TaskNotFoundError):
                    pass
                else:
                    if is_true(task):
                        return task
                await asyncio.sleep(POLL_S)

    async def answer(
        self,
        approval_id: str,
        decision: event_pb2.ApprovalDecision.ValueType,
        *,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> bool:
        """Answer at the root task's host. Return False if the call failed before a response."""
        task_id = approval_id.rpartition(".")[0]
        request = task_service_pb2.AnswerApprovalRequest(
            task_id=task_id, approval_id=approval_id, decision=decision
        )
        async with self.directory() as directory:
            await directory.wait_until(
                lambda mesh: mesh.knows_task_host(task_id), timeout_s=PATIENCE_S
            )

            async def send_answer() -> bool:
                try:
                    await directory.client_for_task(task_id).tasks.AnswerApproval(request)
                except (PeerError, TaskNotFoundError):
                    return False
                return True

            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                answered = group.create_task(send_answer())
                if meanwhile is not None:
                    await meanwhile()
            return answered.result()


def is_settled(task: snapshot_pb2.TaskSnapshot) -> bool:
    return task.task.status.state in INTERRUPTED | TERMINAL


def all_text(task: snapshot_pb2.TaskSnapshot) -> str:
    """Return all text of a task."""
    parts = [part for artifact in task.task.artifacts for part in artifact.parts]
    parts += [part for message in task.task.history for part in message.parts]
    return "\n".join(part.text for part in (*parts, *task.task.status.message.parts))


@dataclass
class Trial:
    """Two orders, approved in random order, with a kill of the mesh at a random point."""

    person: Person
    rng: random.Random
    number: int
    expected: Counter[str]

    async def run(self, kill_signal: signal.Signals) -> None:
        mesh = self.person.mesh
        task_id = await self.person.ask(f"order {self.number} apples and order {self.number} pears")
        waiting = await self.person.until(task_id, is_settled)
        assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED, all_text(waiting)
        await mesh.stop(kill_signal)
        await mesh.start()
        current = await self.person.until(task_id, is_settled)
        assert current.approvals == waiting.approvals
        paths = sorted(list(approval.requested.path) for approval in current.approvals)
        assert paths == [["supervisor", name] for name in FRUIT]
        first, second = self.rng.sample(range(2), 2)
        await self._answer_and_kill(current, first)
        remaining = await self.person.until(task_id, self._has_acted_on(first))
        decision = self.rng.choice((APPROVED, REJECTED))
        if self.rng.random() < 0.5:
            await self.person.ask("approve" if decision == APPROVED else "reject no", task_id)
        else:
            assert await self.person.answer(
                remaining.approvals[second].requested.approval_id, decision
            )
        ended = await self.person.until(task_id, lambda now: now.task.status.state in TERMINAL)
        self._expect(ended, first, APPROVED)
        self._expect(ended, second, decision)

    async def _answer_and_kill(self, task: snapshot_pb2.TaskSnapshot, index: int) -> None:
        """Approve one call, and kill all processes at a random point after the request."""
        approval_id = task.approvals[index].requested.approval_id

        async def kill() -> None:
            # The point is a number of event loop iterations, not a time.
            for _ in range(self.rng.randrange(6000)):
                await asyncio.sleep(0)
            await self.person.mesh.stop(signal.SIGKILL)

        await self.person.answer(approval_id, APPROVED, meanwhile=kill)
        await self.person.mesh.start()
        while True:
            now = await self.person.until(task.task.id, is_settled)
            if now.approvals[index].HasField("answered"):
                return
            # The kill came before the answer was committed.
            await self.person.answer(approval_id, APPROVED)

    def _has_acted_on(self, index: int) -> Callable[[snapshot_pb2.TaskSnapshot], bool]:
        def is_true(task: snapshot_pb2.TaskSnapshot) -> bool:
            answered = task.approvals[index].HasField("answered")
            return answered and is_settled(task) and task.turn > 1

        return is_true

    def _expect(
        self,
        ended: snapshot_pb2.TaskSnapshot,
        index: int,
        decision: event_pb2.ApprovalDecision.ValueType,
    ) -> None:
        """Record the expected lines of a shop's order file: one, none, or either if both fit."""
        fruit = ended.approvals[index].requested.path[-1]
        order = f"{self.number} {fruit}"
        text = all_text(ended)
        if decision == REJECTED:
            self.expected[order] = 0
            assert f"{fruit}/order was not called. It was rejected" in text
        elif f"Ordered {order}." in text:
            self.expected[order] = 1
        else:
            assert f"{fruit}/order was called" in text, text
            assert UNKNOWN in text, text


@pytest.mark.parametrize("shape", [OneProcess, OneServiceEach])
async def test_approval_bubbles_up_and_survives_restarts(
    tmp_path: Path,
    scale: PromiseScale,
    rng: random.Random,
    shape: Callable[[AsyncExitStack, Path], Mesh],
) -> None:
    """After a kill between question, answer and call, each approved call is made exactly once."""
    is_one = shape is OneProcess
    rounds = scale.pick(ci=1, prove=60 if is_one else 20)
    expected: Counter[str] = Counter()
    harms: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)
    async with AsyncExitStack() as stack:
        mesh = shape(stack, tmp_path)
        await mesh.start()
        for number in range(1, rounds + 1):
            await Trial(Person(mesh), rng, number, expected).run(harms[(number + is_one) % 2])
    book = (tmp_path / "orders").read_text(encoding="utf-8").splitlines()
    made = Counter(book)
    unknown = 0
    for number in range(1, rounds + 1):
        for name in FRUIT:
            order = f"{number} {name}"
            assert made[order] <= 1, f"{order} was made {made[order]} times"
            if order in expected:
                assert made[order] == expected[order], order
            else:
                unknown += 1
    scale.report(rounds=rounds, orders=len(book), said_unknown=unknown)
