"""A run whose host is killed, or stopped, at its nodes goes on, and repeats nothing it had done."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.promise_scale import PromiseScale
from harness.workflows.host import JOURNEY
from harness.workflows.messages import serve_messages
from trunkline import TaskContext, agent
from trunkline.errors import TrunklineError
from trunkline.messaging.client import MessagingClient
from trunkline.messaging.conversion import build_envelope
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import event_pb2, message_service_pb2, snapshot_pb2

TESTS = Path(__file__).parents[1]
NODES = [node.id for node in JOURNEY.nodes]


class Journey:
    """Runs of the workflow, whose host is killed when given nodes begin."""

    def __init__(
        self, host: KillableAgent, user: MessagingClient, folder: Path, rng: random.Random
    ) -> None:
        self.host = host
        self.mesh: SmallMesh = host.mesh
        self.user = user
        self.folder = folder
        self.rng = rng
        self.doubled: list[str] = []
        self.stops = rng.randrange(2)

    async def run(self, kills: Sequence[str]) -> snapshot_pb2.TaskSnapshot:
        """Run once; kill the host soon after the first begin of each of these nodes."""
        self.doubled.clear()
        for name in ("notes", "orders"):
            (self.folder / name).unlink(missing_ok=True)
        left = set(kills)
        task_id = await self.mesh.begin("hello", agent="journey")
        cursor, is_heard = 0, False
        while True:
            try:
                client = self.mesh.directory.client_for_task(task_id)
                async with client.watch_task(
                    task_id, account="", after=cursor, with_snapshot=False
                ) as stream:
                    async for group in stream:
                        for batch in map(event_pb2.EventBatch.FromString, group):
                            cursor = batch.header.first_sequence + batch.header.count - 1
                            for event in batch.events:
                                node = event.step_started.step_id
                                if node in left:
                                    left.discard(node)
                                    await asyncio.sleep(self.rng.random() * 0.05)
                                    await self.stop_and_start()
                                if node == "hear" and not is_heard:
                                    is_heard = True
                                    await self.say(task_id)
                                await self.answer(event, task_id)
                ended = await self.mesh.get_task(task_id)
                if ended.task.status.state in TERMINAL:
                    return ended
            except TrunklineError:
                # Its host is starting.
                await asyncio.sleep(0.05)

    async def stop_and_start(self) -> None:
        """Kill the host, or let it end in order, in turns; start it again."""
        self.stops += 1
        if self.stops % 2:
            await self.host.kill_and_start()
            return
        process = self.host.process
        assert process is not None
        process.terminate()
        await process.wait()
        await self.host.start()

    async def say(self, task_id: str) -> None:
        """Send the message that the run waits for."""
        context_id = (await self.mesh.get_task(task_id)).task.context_id
        await self.user.send(
            [build_envelope("heard", recipient="journey", correlation_id=context_id)]
        )

    async def answer(self, event: event_pb2.Event, task_id: str) -> None:
        """Approve what a run asks for."""
        if event.status.status.state == State.TASK_STATE_INPUT_REQUIRED:
            await self.mesh.client("journey").send_message(
                agent="journey",
                message=self.mesh.message("approve", task_id=task_id),
                submission=message_service_pb2.Submission(),
                return_immediately=True,
            )

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of effects."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


@pytest.fixture
async def journey(tmp_path: Path, rng: random.Random) -> AsyncIterator[Journey]:
    command = (sys.executable, "-m", "harness.workflows.host")
    environment = {"WORKFLOW_FOLDER": str(tmp_path)}
    async with open_small_mesh(tmp_path, lease_s=30.0) as mesh, AsyncExitStack() as stack:
        user = await serve_messages(mesh, tmp_path, with_shop=True)
        data = tmp_path / "host"
        host = KillableAgent(mesh, "journey", command, data, stack, TESTS, environment)
        journey = Journey(host, user, tmp_path, rng)

        @agent(name="double", description="Doubles.")
        async def double(task: TaskContext) -> str:
            journey.doubled.append(task.text)
            return str(2 * int(task.text))

        await mesh.join(double)
        await host.start()
        yield journey


async def test_a_killed_run_goes_on_behind_its_last_checkpoint(
    journey: Journey, scale: PromiseScale, rng: random.Random
) -> None:
    rounds = scale.pick(
        ci=[rng.sample(NODES, 2)], prove=[[node] for node in NODES for _ in range(20)]
    )
    for kills in rounds:
        ended = await journey.run(kills)

        assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
        assert texts(ended) == ["42 4 6 heard"], kills
        assert Counter(journey.doubled) == Counter(["21", "1", "2", "3", "5"]), kills
        # A node that was cut off runs again; one that had ended does not.
        for node, line in (("note", "first"), ("note_again", "last")):
            assert 1 <= journey.lines("notes").count(line) <= 1 + kills.count(node), kills
        # An order that was cut off is not made again.
        assert journey.lines("orders") in ([["1 pen"]] if "shop" not in kills else [["1 pen"], []])
    scale.report(rounds=len(rounds), nodes=len(NODES))
