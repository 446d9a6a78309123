"""Hosts in separate processes, and a caller on their mesh."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import Services, open_services
from trunkline.core.task_states import TERMINAL
from trunkline.errors import PeerError, TaskNotFoundError
from trunkline.journal.sqlite import find_orphaned_journals
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    task_pb2,
)

# Far longer than any wait takes, so that only a hang reaches it.
PATIENCE_S: Final = 300.0
POLL_S: Final = 0.02
# Long enough for a host that a busy machine runs only a few times a second.
QUICK: Final = {"TRUNKLINE_LEASE_S": "2"}
NUMBERS: Final = 100
WHOLE: Final = "".join(f"{number} " for number in range(1, NUMBERS + 1))


@dataclass(frozen=True)
class Caller:
    """A caller of the agents on the mesh."""

    directory: Directory

    async def begin(self, text: str, *, agent: str = "echo") -> str:
        """Send a message; return its task's id as soon as the task exists."""
        message = message_pb2.Message(
            message_id="m-1", role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text=text)]
        )
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    answer = await self.directory.client_for_agent(agent).send_message(
                        agent=agent,
                        message=message,
                        submission=message_service_pb2.Submission(),
                        return_immediately=True,
                    )
                except PeerError:
                    # gRPC waits up to a second before it retries a refused connection.
                    await asyncio.sleep(POLL_S)
                    continue
                assert isinstance(answer, snapshot_pb2.TaskSnapshot)
                return answer.task.id

    async def until(
        self, task_id: str, predicate: Callable[[snapshot_pb2.TaskSnapshot], bool]
    ) -> snapshot_pb2.TaskSnapshot:
        """Poll the task on its current host until the predicate is true."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    client = self.directory.client_for_task(task_id)
                    snapshot = await client.get_task(task_id, account="")
                    if predicate(snapshot):
                        return snapshot
                except (PeerError, TaskNotFoundError):
                    pass  # Its host is gone, and no other has taken it over yet.
                await asyncio.sleep(POLL_S)

    async def begin_streaming(self, *, agent: str = "echo") -> str:
        """Begin a task that streams for a while, and wait for its first text."""
        task_id = await self.begin(f"count {NUMBERS} 20", agent=agent)
        await self.until(task_id, lambda snapshot: len(text_of(snapshot)) > 10)
        return task_id

    async def begin_question(self, *, agent: str = "echo") -> str:
        """Begin a task that asks a question, and wait for the question."""
        task_id = await self.begin("ask your name?", agent=agent)
        await self.until(task_id, is_waiting)
        return task_id

    async def answer(self, task_id: str, text: str, *, agent: str = "echo") -> None:
        """Answer a waiting task on any host, and follow the turn to its end."""
        async with self.directory.submit(
            agent,
            message=_answer(task_id, text),
            submission=message_service_pb2.Submission(),
            patience_s=PATIENCE_S,
        ) as turn:
            async for _ in turn:
                pass

    async def answer_once(self, task_id: str, text: str, *, agent: str = "echo") -> None:
        """Answer a task on its current host, without retries."""
        await self.directory.client_for_task(task_id).send_message(
            agent=agent,
            message=_answer(task_id, text),
            submission=message_service_pb2.Submission(),
        )

    def host_of(self, task_id: str) -> str:
        """Return the address of the host that serves the task now; "" if none does."""
        try:
            return self.directory.get_task_host(task_id).address
        except PeerError:
            return ""

    async def wait_until_moved(self, agent: str, task_id: str) -> None:
        """Wait until the task is served by a host that runs the agent."""
        await self.directory.wait_until(
            lambda known: (
                agent in known.list_agents()
                and self.host_of(task_id) in [host.address for host in known.list_replicas(agent)]
            ),
            timeout_s=PATIENCE_S,
        )

    async def wait_for_agents(self, *agents: str) -> None:
        """Wait until exactly these agents are on the mesh."""
        await self.directory.wait_until(
            lambda known: set(known.list_agents()) == set(agents), timeout_s=PATIENCE_S
        )


def _answer(task_id: str, text: str) -> message_pb2.Message:
    return message_pb2.Message(
        message_id=f"answer-{text}",
        task_id=task_id,
        role=message_pb2.ROLE_USER,
        parts=[part_pb2.Part(text=text)],
    )


def text_of(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    return "".join(part.text for artifact in snapshot.task.artifacts for part in artifact.parts)


def has_ended(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    return snapshot.task.status.state in TERMINAL


def is_waiting(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    return snapshot.task.status.state == task_pb2.TASK_STATE_INPUT_REQUIRED


def failure_reason(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    return "".join(part.text for part in snapshot.task.status.message.parts)


def journals(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data" / "journals").glob("*.db")}


async def wait_until_lease_expired(folder: Path, seconds: float) -> None:
    """Wait until the lease of some journal ended more than `seconds` ago."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if any(
                not journal.was_released and journal.lost_for_s > seconds
                for journal in find_orphaned_journals(folder / "data" / "journals")
            ):
                return
            await asyncio.sleep(POLL_S)


@asynccontextmanager
async def hosts(
    folder: Path, *agents: str, environment: dict[str, str] = QUICK
) -> AsyncIterator[tuple[Services, Caller]]:
    """Run a registry, and a process for each agent."""
    async with (
        open_services(folder, environment=environment) as services,
        ChannelPool(mesh_credentials()) as channels,
    ):
        await services.start("registry", "registry")
        for name in agents:
            await services.launch(name, "agents", name)
        for name in agents:
            await services.ready(name)
        async with Directory(channels, services.mesh_address) as directory:
            caller = Caller(directory)
            await caller.wait_for_agents(*agents)
            yield services, caller


async def replica(services: Services, caller: Caller, name: str, *agents: str) -> None:
    """Start another process of agents; return when the caller knows it."""
    await services.start(name, "agents", *agents)
    address = services.address(name)
    await caller.directory.wait_until(
        lambda known: any(host.address == address for host in known.hosts), timeout_s=PATIENCE_S
    )
