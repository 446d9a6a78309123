"""A live host takes over the run of a workflow whose host was killed."""

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.processes import read_line, running_process
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline import TaskContext, agent
from trunkline.core.json_values import has_member, read_member
from trunkline.core.small_files import FolderFiles
from trunkline.core.task_states import PAUSED_KEY
from trunkline.errors import TraceNotFoundError
from trunkline.observe.traces import SpanStore
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.tasks.rewind import ATTEMPT_KEY
from trunkline.workflows.versions import WorkflowVersions

TESTS = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "harness.workflows.story_host")


class Gate:
    """The agent that the workflow asks, which waits at `hold`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.arrived = asyncio.Event()
        self.opened = asyncio.Event()

    async def join(self, mesh: SmallMesh) -> None:
        @agent(name="gated", description="Waits for a gate.")
        async def gated(task: TaskContext) -> str:
            self.asked.append(task.text)
            self.arrived.set()
            await self.opened.wait()
            return task.text

        await mesh.join(gated)


async def test_a_live_host_keeps_the_pause_and_the_version_of_a_run(tmp_path: Path) -> None:
    data = tmp_path / "host"
    environment = {"WORKFLOW_FOLDER": str(tmp_path), "TRUNKLINE_LEASE_S": "2"}
    async with AsyncExitStack() as stack:
        spans = stack.enter_context(SpanStore(tmp_path / "traces.db"))
        mesh = await stack.enter_async_context(open_small_mesh(tmp_path, spans=spans))
        gate = Gate()
        await gate.join(mesh)
        old = environment | {"STORY_VERSIONS": "1"}
        host = KillableAgent(mesh, "story", COMMAND, data, stack, TESTS, old)
        await host.start()
        task_id = await mesh.begin("hi", agent="story")
        async with asyncio.timeout(60):
            await gate.arrived.wait()
        await mesh.client("story").pause_task(task_id, account="")
        options = ("--mesh", mesh.registry_address, "--data", str(data))
        live = await stack.enter_async_context(
            running_process(
                *(*COMMAND, *options), cwd=TESTS, environment=environment | {"STORY_VERSIONS": "2"}
            )
        )
        await read_line(live, "ready ")

        await host.kill()
        gate.opened.set()
        # The node that was cut off does not begin again while the run is paused.
        paused = await mesh.until(task_id, lambda now: has_member(now.task.metadata, ATTEMPT_KEY))
        assert read_member(paused.task.metadata, PAUSED_KEY)
        assert gate.asked == ["hold"]
        await mesh.directory.client_for_task(task_id).resume_task(task_id, account="")
        ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)

        assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
        assert texts(ended) == ["version 1"]
        assert gate.asked == ["hold", "say"]
        assert (tmp_path / "notes").read_text(encoding="utf-8") == "noted\n"
        # New runs take the newest version, until it is rolled back.
        newest = await mesh.ask("hi", agent="story")
        assert texts(newest) == ["version 2"], status_texts(newest)
        await WorkflowVersions(FolderFiles(data)).roll_back("story")
        assert texts(await mesh.ask("hi", agent="story")) == ["version 1"]
        # The node that was killed has no span; all others are below a turn of the task.
        parents = await find_parents(spans, task_id, "run_node end")
        assert parents["run_node say"] == parents["run_node end"] == "invoke_workflow story"
        # The span of the request itself may be lost with the host that received it.
        request = ("trunkline.v1.MessageService/SendMessage", ended.traceparent.split("-")[2])
        assert parents["invoke_workflow story"] in request


async def find_parents(spans: SpanStore, task_id: str, last: str) -> dict[str, str]:
    """Return the names of a task's spans, with `last`, and of their parents, or a lost one's id."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    with spans.subscribe(lambda: loop.call_soon_threadsafe(changed.set)):
        async with asyncio.timeout(60):
            while True:
                changed.clear()
                with suppress(TraceNotFoundError):
                    known = spans.get_trace(task_id=task_id)
                    if any(span.name == last for span in known):
                        by_id = {span.span_id: span.name for span in known}
                        return {
                            span.name: by_id.get(span.parent_span_id, span.parent_span_id)
                            for span in known
                        }
                await changed.wait()
