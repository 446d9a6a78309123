"""A run whose host dies or stops at any node continues, and repeats no committed node."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import cycle, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from harness.agents.inline_agents import status_texts, texts
from harness.mcp.shop_tools import join_shop_tools
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.messages import join_messages
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.polling import wait_for
from harness.promise_scale import PromiseScale
from harness.workflows.host import INNER, JOURNEY
from harness.workflows.kill_points import POINTS, TURN_POINTS, kill_file
from trunkline import TaskContext, agent
from trunkline.errors import TaskEndedError, TrunklineError, UnsupportedOperationError
from trunkline.messages.client import MessagingClient
from trunkline.messages.conversion import build_envelope
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import event_pb2, message_service_pb2, snapshot_pb2

TESTS = Path(__file__).parents[1]
NODES = [f"{flow.name}/{node.id}" for flow in (JOURNEY, INNER) for node in flow.nodes]
# Of a host that can't count its own instructions: the test sees the begin, and acts soon after.
KILLED: Final = "killed soon"
STOPPED: Final = "stopped soon"
ROUNDS: Final = 20
# Far longer than a run with a restart takes, so that only a hang reaches it.
_PATIENCE_S: Final = 120.0


class Death(NamedTuple):
    """The point of a run at which its host dies."""

    node: str
    """`WORKFLOW/NODE`; of INNER only with a point of the host itself."""
    point: str

    @property
    def is_exact(self) -> bool:
        return self.point not in {KILLED, STOPPED}


TURN_DEATHS: Final = [
    Death(f"{name}/", point)
    for name, point in product(("journey", "inner"), TURN_POINTS)
    # The inner one has no question.
    if (name, point) != ("inner", "asking")
]


class Run(NamedTuple):
    """The result and the events of a run."""

    texts: Sequence[str]
    problem: str
    began: Counter[str]
    ended: Counter[str]
    """By node; one that only waits has not ended."""
    requests: Counter[str]
    """By tool: what a person was asked to approve."""


class Journey:
    """Runs of the workflow, whose host dies and starts again."""

    def __init__(
        self, host: KillableAgent, user: MessagingClient, folder: Path, rng: random.Random
    ) -> None:
        self.host = host
        self.mesh: SmallMesh = host.mesh
        self.user = user
        self.folder = folder
        self.rng = rng
        self.doubled: list[str] = []

    async def run(self, death: Death) -> Run:
        """Run once; the host dies once, and starts again."""
        self.doubled.clear()
        for name in ("notes", "orders"):
            (self.folder / name).unlink(missing_ok=True)
        if death.is_exact:
            kill_file(self.folder).write_text(f"{death.node} {death.point}", encoding="utf-8")
        hosts = len(self.lines("hosts"))
        task_id = await self.mesh.begin("hello", agent="journey")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self.follow(task_id, death)
        except TimeoutError:
            raise AssertionError((death, task_id, self.lines("hosts")[hosts:])) from None
        # A host may also die behind the end of a run.
        await wait_for(lambda: len(self.lines("hosts")) > hosts)
        assert len(self.lines("hosts")) == hosts + 1, death
        ended, events = await self.read(task_id)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED, (death, status_texts(ended))
        finished = [event.step_finished for event in events if event.HasField("step_finished")]
        return Run(
            texts(ended),
            status_texts(ended),
            Counter(each.step_started.step_id for each in events if each.HasField("step_started")),
            Counter(each.step_id for each in finished if each.label != "waiting"),
            Counter(
                each.approval_requested.tool
                for each in events
                if each.HasField("approval_requested")
            ),
        )

    async def read(
        self, task_id: str
    ) -> tuple[snapshot_pb2.TaskSnapshot, Sequence[event_pb2.Event]]:
        """Return a task and its events, once its host serves it."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    batches = await self.mesh.events(task_id)
                    events = [event for batch in batches for event in batch.events]
                    return await self.mesh.get_task(task_id), events
                except TrunklineError:
                    await asyncio.sleep(0.05)

    async def follow(self, task_id: str, death: Death) -> None:
        """Follow a run to its end, answer what it asks, and stop its host if this is to do it."""
        cursor, is_heard, is_stopped = 0, False, death.is_exact
        while True:
            try:
                client = self.mesh.directory.client_for_task(task_id)
                async with client.watch_task(
                    task_id, account="", after=cursor, with_snapshot=False
                ) as stream:
                    async for group in stream:
                        for batch in map(event_pb2.EventBatch.FromString, group):
                            for event in batch.events:
                                node = event.step_started.step_id
                                if not is_stopped and death.node == f"journey/{node}":
                                    is_stopped = True
                                    await asyncio.sleep(self.rng.random() * 0.05)
                                    self.stop(death)
                                if node == "hear" and not is_heard:
                                    await self.say(task_id)
                                    is_heard = True
                                await self.answer(event, task_id, batch.header.first_sequence)
                            # Its host may have died before it had the answer.
                            cursor = batch.header.first_sequence + batch.header.count - 1
                ended = await self.mesh.get_task(task_id)
                if ended.task.status.state in TERMINAL:
                    return
            except TrunklineError:
                # Its host is starting.
                await asyncio.sleep(0.05)

    def stop(self, death: Death) -> None:
        """Kill the host, or let it end in order."""
        os.kill(
            int(self.lines("hosts")[-1]),
            signal.SIGKILL if death.point == KILLED else signal.SIGTERM,
        )

    async def say(self, task_id: str) -> None:
        """Send the message that the run waits for."""
        context_id = (await self.mesh.get_task(task_id)).task.context_id
        await self.user.send(
            [build_envelope("heard", recipient="journey", correlation_id=context_id)]
        )

    async def answer(self, event: event_pb2.Event, task_id: str, sequence: int) -> None:
        """Approve what a run asks for, unless its host had the answer before it died."""
        if event.status.status.state == State.TASK_STATE_INPUT_REQUIRED:
            message = self.mesh.message("approve", task_id=task_id)
            message.message_id = f"{task_id}-{sequence}"
            # A task that works, or has ended, has its answer.
            with suppress(UnsupportedOperationError, TaskEndedError):
                await self.mesh.client("journey").send_message(
                    agent="journey",
                    message=message,
                    submission=message_service_pb2.Submission(idempotent=True),
                    return_immediately=True,
                )

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of effects."""
        path = self.folder / name
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


@asynccontextmanager
async def open_journey(folder: Path, rng: random.Random) -> AsyncIterator[Journey]:
    command = (sys.executable, "-m", "harness.workflows.host")
    environment = {"WORKFLOW_FOLDER": str(folder)}
    async with open_small_mesh(folder, lease_s=30.0) as mesh, AsyncExitStack() as stack:
        user = await join_messages(mesh)
        await join_shop_tools(mesh, folder)
        data = folder / "host"
        host = KillableAgent(mesh, "journey", command, data, stack, TESTS, environment)
        journey = Journey(host, user, folder, rng)

        @agent(name="double", description="Doubles.")
        async def double(task: TaskContext) -> str:
            journey.doubled.append(task.text)
            return str(2 * int(task.text))

        await mesh.join(double)
        await host.start()
        yield journey


@pytest.fixture
async def journey(tmp_path: Path, rng: random.Random) -> AsyncIterator[Journey]:
    async with open_journey(tmp_path, rng) as journey:
        yield journey


def list_deaths(rounds: int) -> list[Death]:
    """Return that many deaths at each node, at all points in turn, and at each end of a turn."""
    deaths = [death for death in TURN_DEATHS for _ in range(rounds)]
    for node in NODES:
        is_outer = node.startswith("journey/")
        points = cycle((*POINTS, KILLED, STOPPED) if is_outer else POINTS)
        deaths += [Death(node, next(points)) for _ in range(rounds)]
    return deaths


async def test_a_killed_run_goes_on_behind_its_last_checkpoint(
    journey: Journey, scale: PromiseScale, rng: random.Random
) -> None:
    rounds = scale.rounds(ROUNDS)
    deaths = scale.pick(
        ci=[TURN_DEATHS[0], TURN_DEATHS[-1], rng.choice(list_deaths(6))],
        prove=list_deaths(rounds),
    )
    for number, death in enumerate(deaths):
        run = await journey.run(death)

        assert run.texts == ["42 4 6 heard"], death
        # The message of a run may be delivered after its end.
        await wait_for(lambda: "5" in journey.doubled)
        assert Counter(journey.doubled) == Counter(["21", "1", "2", "3", "5"]), death
        # A person is asked once.
        assert run.requests == {"shop/order": 1, "sure": 1}, death
        # An order is made once; one that was cut off is not made again.
        orders = [["1 pen"]] if death.is_exact else [["1 pen"], []]
        assert journey.lines("orders") in orders, death
        check_nodes(journey, run, death)
        scale.show_progress(number + 1, len(deaths), death)
    scale.report(rounds=len(deaths), nodes=len(NODES))


def check_nodes(journey: Journey, run: Run, death: Death) -> None:
    """Assert that nodes ran again only if they had not committed."""
    for node in (node.id for node in JOURNEY.nodes):
        is_killed = death.node == f"journey/{node}"
        # A node that asks begins again with the answer.
        begins = 2 if node in {"sure", "shop"} else 1
        if death.is_exact:
            is_repeated = is_killed and death.point != "committed"
            # Its begin may not have been durable, and the other branches were cut off, too.
            assert begins <= run.began[node] or is_killed, (node, death)
            most = begins + (is_repeated or node in find_concurrent(death))
            assert run.began[node] <= most, (node, death)
            is_ended_twice = is_killed and death.point == "journaled"
            assert run.ended[node] <= 1 + (is_ended_twice or node in find_concurrent(death)), death
        assert run.ended[node] >= 1, (node, death)
    for node, line in (("note", "first"), ("note_again", "last")):
        # A function has no answer that could be read again, so it is called until it commits.
        is_killed = death.node == f"journey/{node}"
        counts = {1}
        if is_killed and death.point in {"worked", "journaled"}:
            counts = {2}
        elif not death.is_exact:
            # Soon after the begin of a node, another one may run.
            counts = {1, 2}
        assert journey.lines("notes").count(line) in counts, (node, death)


def find_concurrent(death: Death) -> set[str]:
    """Return the nodes that may run when the host dies, besides the one that it dies at."""
    branches = ({"left", "left_again"}, {"sure", "inner"})
    if death.point == "asking":
        return {"left", "left_again", "sure"}
    workflow, _, node = death.node.partition("/")
    if workflow == "inner":
        return {"inner", "left", "left_again"}
    return next((other for own, other in (branches, branches[::-1]) if node in own), set())
