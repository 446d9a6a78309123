"""Workflows as agents of a mesh: their nodes, branches, inputs, outputs, versions and pauses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.messages import join_messages
from harness.mesh.small_mesh import SmallMesh
from harness.remote.measurements import measuring
from harness.workflows.building import action_node, agent_node, build
from trunkline import TaskContext, TaskState, agent, from_workflow
from trunkline.core.json_values import read_member, struct_json, update_struct, value_json
from trunkline.core.small_files import FolderFiles
from trunkline.core.task_states import PAUSED_KEY, find_outcome
from trunkline.errors import ConfigurationError, UnsupportedOperationError
from trunkline.messages.conversion import build_envelope
from trunkline.messages.store import EnvelopeFilter
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.testing import mesh as open_mesh
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2
from trunkline.workflows.definition import Workflow
from trunkline.workflows.versions import WorkflowVersions

GO = "message.text == 'go'"
FUNCTIONS = "harness.workflows.functions"


class Helpers:
    """The agents that the workflows ask."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.at_gate = asyncio.Event()
        self.failures = 0
        self.canceled = asyncio.Event()

    async def join(self, mesh: SmallMesh) -> None:
        @agent(name="echo", description="Repeats.")
        async def echo(task: TaskContext) -> str:
            self.asked.append(task.text)
            return task.text

        @agent(name="gated", description="Waits for a gate.")
        async def gated(task: TaskContext) -> str:
            self.asked.append(f"gated {task.text}")
            self.at_gate.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.canceled.set()
                raise
            return f"gated {task.text}"

        @agent(name="flaky", description="Fails at first.")
        async def flaky(task: TaskContext) -> str | None:
            self.failures += 1
            if self.failures < 3:
                await task.fail(f"failure {self.failures}")
                return None
            return f"at attempt {self.failures}"

        @agent(name="curious", description="Asks back.")
        async def curious(task: TaskContext) -> str | None:
            if task.turn == 1:
                await task.require_input(f"{task.text}: which colour?")
                return None
            return f"the colour is {task.text}"

        @agent(name="usher", description="Waits until somebody is at the gate.")
        async def usher(task: TaskContext) -> None:
            await self.at_gate.wait()

        await mesh.join(echo, gated, flaky, curious, usher)


@pytest.fixture
async def helpers(mesh: SmallMesh) -> Helpers:
    helpers = Helpers()
    await helpers.join(mesh)
    return helpers


async def run(mesh: SmallMesh, workflow: Workflow, text: str = "hi") -> snapshot_pb2.TaskSnapshot:
    await mesh.join(from_workflow(workflow))
    return await mesh.ask(text, agent=workflow.name)


async def send(mesh: SmallMesh, name: str, **content: Any) -> snapshot_pb2.TaskSnapshot:
    """Send a message with a data part or metadata, or one that answers."""
    message = mesh.message(content.get("text", ""), task_id=content.get("task_id", ""))
    if "data" in content:
        del message.parts[:]
        part = message.parts.add(media_type="application/json")
        update_struct(part.data.struct_value, content["data"])
    update_struct(message.metadata, content.get("metadata", {}))
    answer = await mesh.client(name).send_message(
        agent=name, message=message, submission=message_service_pb2.Submission(), timeout_s=60
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


def data(task: snapshot_pb2.TaskSnapshot) -> Any:
    (artifact,) = task.task.artifacts
    (value,) = [value_json(part.data) for part in artifact.parts if part.HasField("data")]
    return value


async def steps(mesh: SmallMesh, task_id: str) -> list[str]:
    """Return the steps in the journal, in order: `node` as it begins, `node label` as it ends."""
    found: list[str] = []
    for event in [event for batch in await mesh.events(task_id) for event in batch.events]:
        if event.HasField("step_started"):
            found.append(event.step_started.step_id)
        elif event.HasField("step_finished"):
            found.append(f"{event.step_finished.step_id} {event.step_finished.label}")
    return found


async def until_step(mesh: SmallMesh, task_id: str, step: str) -> None:
    """Wait until the journal has a step, as `steps` returns it."""
    client = mesh.directory.client_for_task(task_id)
    async with asyncio.timeout(30), client.watch_task(task_id, account="", after=0) as stream:
        if step in await steps(mesh, task_id):
            return
        async for _ in stream:
            if step in await steps(mesh, task_id):
                return


SUM = build(
    "sum",
    {"id": "end", "output": {"sum": "${input.a + input.b}", "text": "${string(input.a)}"}},
    edges="start > end",
    inputs={
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    },
    outputs={"type": "object", "properties": {"sum": {"type": "integer", "maximum": 100}}},
)


async def test_input_and_output_are_checked_by_schema(mesh: SmallMesh) -> None:
    await mesh.join(from_workflow(SUM))

    by_data = await send(mesh, "sum", data={"a": 1, "b": 2})
    by_text = await mesh.ask('{"a": 1, "b": 4}', agent="sum")
    wrong = await send(mesh, "sum", data={"a": 1, "b": "two"})
    missing = await mesh.ask("what?", agent="sum")
    too_large = await send(mesh, "sum", data={"a": 99, "b": 2})

    assert data(by_data) == {"sum": 3, "text": "1"}
    assert texts(by_data) == ["1"]
    assert data(by_text)["sum"] == 5
    assert wrong.task.status.state == State.TASK_STATE_REJECTED
    assert "b: 'two' is not of type 'integer'" in status_texts(wrong)
    assert missing.task.status.state == State.TASK_STATE_REJECTED
    assert "a (integer, required), b (integer, required)" in status_texts(missing)
    assert too_large.task.status.state == State.TASK_STATE_FAILED
    assert "sum: 101 is greater than the maximum" in status_texts(too_large)


async def test_a_text_is_the_one_required_field_and_ends_have_states(mesh: SmallMesh) -> None:
    flow = build(
        "judge",
        {"id": "size", "type": "condition", "handler": f"{FUNCTIONS}:is_long"},
        {
            "id": "kind",
            "type": "condition",
            "cases": [{"label": "no", "when": "last.text == 'no'"}],
        },
        {"id": "end", "output": "judged ${input.what}"},
        {"id": "refused", "type": "end", "state": "rejected", "output": "refused ${input.what}"},
        {"id": "broken", "type": "end", "state": "failed"},
        edges="""start > size
            size > end: true
            size > kind: false
            kind > refused: no
            kind > broken: otherwise""",
        inputs={"required": ["what"]},
    )
    long = await run(mesh, flow, "something")
    refused = await mesh.ask("no", agent="judge")
    broken = await mesh.ask("yes", agent="judge")

    assert texts(long) == ["judged something"]
    assert refused.task.status.state == State.TASK_STATE_REJECTED
    assert status_texts(refused) == "refused no"
    assert broken.task.status.state == State.TASK_STATE_FAILED
    plan, *_ = (
        event.plan.plan_id
        for batch in await mesh.events(long.task.id)
        for event in batch.events
        if event.HasField("plan")
    )
    assert plan == "judge@1"
    assert await steps(mesh, long.task.id) == [
        *("start", "start ok", "size", "size true", "end", "end ok")
    ]


async def test_failures_are_retried_then_follow_their_edge_and_limits_end_a_run(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    retried = build(
        "retried",
        agent_node("ask", "flaky", retry={"attempts": 3, "backoff": "1ms"}),
        edges="start > ask > end",
    )
    assert texts(await run(mesh, retried)) == ["at attempt 3"]

    handled = build(
        "handled",
        action_node("act", handler=f"{FUNCTIONS}:fail"),
        action_node("wrong", handler=f"{FUNCTIONS}:return_a_set"),
        agent_node("slow", "gated", timeout="50ms"),
        action_node("shout", handler=f"{FUNCTIONS}:shout"),
        {
            "id": "end",
            "output": {"all": ["${nodes.act.text}", "${nodes.wrong.text}", "${last.data}"]},
        },
        edges="""start > act > end
            act > wrong: failed
            wrong > slow: failed
            slow > shout: failed
            shout > end""",
    )
    with measuring() as measured:
        handled_run = await run(mesh, handled)
        assert measured.of("trunkline.workflow.node.duration") == {
            ("handled", "start"): 1,
            ("handled", "act", "failed"): 1,
            ("handled", "wrong", "failed"): 1,
            ("handled", "slow", "failed"): 1,
            ("handled", "shout"): 1,
            ("handled", "end"): 1,
        }
    assert data(handled_run)["all"] == [
        "fail: LookupError: no such thing",
        "return_a_set: its result is not JSON: Object of type set is not JSON serializable",
        {"shouted": "IT TOOK LONGER THAN 50MS"},
    ]

    unhandled = build(
        "unhandled",
        action_node("act", set={"x": "${nodes.nothing.text}"}),
        edges="start > act > end",
    )
    failed = await run(mesh, unhandled)
    assert failed.task.status.state == State.TASK_STATE_FAILED
    assert "workflow 'unhandled' failed at 'act'" in status_texts(failed)

    endless = build(
        "endless",
        action_node("one"),
        action_node("two"),
        edges="start > one > two > one",
        limits={"steps": 7},
    )
    stopped = await run(mesh, endless)
    assert "it took 7 steps without an end" in status_texts(stopped)


async def test_branches_go_on_alone_nest_and_join_in_a_loop(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    flow = build(
        "branches",
        action_node("count", set={"round": "${has(data.round) ? data.round + 1 : 1}"}),
        {"id": "fork", "type": "parallel", "join": "joined"},
        agent_node("hold", "gated", "${string(data.round)}"),
        {"id": "inner", "type": "parallel", "join": "mixed"},
        agent_node("left", "echo", "left ${string(data.round)}"),
        agent_node("right", "echo", "right ${string(data.round)}"),
        action_node("mixed", handler=f"{FUNCTIONS}:split"),
        action_node("joined"),
        {"id": "again", "type": "condition", "cases": [{"label": "yes", "when": "data.round < 2"}]},
        {
            "id": "end",
            "output": {
                "text": "${nodes.hold.text}, ${nodes.mixed.text}",
                "steps": "${steps}",
            },
        },
        edges="""start > count > fork > hold > joined > again > end: otherwise
            again > count: yes
            fork > inner > left > mixed > joined
            inner > right > mixed
            fork > joined""",
    )
    await mesh.join(from_workflow(flow))
    task_id = await mesh.begin("hi", agent="branches")
    # The inner branches end while the other one waits.
    await until_step(mesh, task_id, "mixed ok")
    assert "hold ok" not in await steps(mesh, task_id)
    helpers.gate.set()
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)

    assert texts(ended) == ["gated 2, left 2 + right 2"], status_texts(ended)
    assert data(ended)["steps"] == 1 + 2 * 9
    assert sorted(each for each in helpers.asked if each[0] != "g") == [
        *("left 1", "left 2", "right 1", "right 2")
    ]


async def test_parallel_nodes_share_a_join_side_by_side_and_within_each_other(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    flow = build(
        "shared",
        {"id": "size", "type": "condition", "handler": f"{FUNCTIONS}:is_long"},
        {"id": "one", "type": "parallel", "join": "joined"},
        {"id": "inner", "type": "parallel", "join": "joined"},
        {"id": "two", "type": "parallel", "join": "joined"},
        *(agent_node(name, "echo", name) for name in "abcde"),
        action_node("joined", set={"all": "${last.data}"}, handler=f"{FUNCTIONS}:split"),
        {"id": "end", "output": "${last.text}, ${string(steps)} steps"},
        edges="""start > size > one: true
            size > two: false
            one > a > joined > end
            one > inner > b > joined
            inner > c > joined
            two > d > joined
            two > e > joined""",
    )
    long = await run(mesh, flow, "something")
    short = await mesh.ask("no", agent="shared")

    # The join runs once, when the branches of the inner node and of the outer one have arrived.
    assert texts(long) == ["a + b + c, 8 steps"], status_texts(long)
    assert texts(short) == ["d + e, 6 steps"], status_texts(short)


async def test_nodes_have_the_names_that_agents_may_have(mesh: SmallMesh, helpers: Helpers) -> None:
    flow = build(
        "names",
        {"id": "fork.it", "type": "parallel", "join": "all-in"},
        agent_node("left-1", "echo", "left"),
        agent_node("2nd.right", "echo", "right"),
        action_node("all-in", handler=f"{FUNCTIONS}:split"),
        {
            "id": "is-it.so",
            "type": "condition",
            "cases": [{"label": "yes", "when": 'nodes["left-1"].text == "left"'}],
        },
        {"id": "end", "output": '${nodes["2nd.right"].text}, ${nodes["all-in"].text}'},
        edges="""start > fork.it > left-1 > all-in > is-it.so > end: yes
            is-it.so > end: otherwise
            fork.it > 2nd.right > all-in""",
    )

    ended = await run(mesh, flow)

    assert texts(ended) == ["right, left + right"], status_texts(ended)


async def test_a_failed_branch_ends_the_run_and_cancels_the_others(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    flow = build(
        "torn",
        {"id": "fork", "type": "parallel", "join": "joined"},
        agent_node("hold", "gated"),
        agent_node("pause", "usher"),
        action_node("act", handler=f"{FUNCTIONS}:fail"),
        action_node("joined"),
        edges="""start > fork > hold > joined > end
            fork > pause > act > joined""",
    )
    failed = await run(mesh, flow)

    assert "failed at 'act'" in status_texts(failed)
    async with asyncio.timeout(30):
        await helpers.canceled.wait()


async def test_people_approve_edit_and_answer_in_two_branches_at_once(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    flow = build(
        "people",
        {"id": "fork", "type": "parallel", "join": "joined"},
        {
            "id": "pay",
            "type": "approval",
            "question": "Pay ${input.text}?",
            "arguments": {"sum": 7},
        },
        agent_node("ask", "curious", "a car"),
        {"id": "ship", "type": "approval", "question": "Ship it?"},
        action_node("joined", set={"sum": "${nodes.pay.data.sum}"}),
        {"id": "end", "output": {"sum": "${data.sum}", "text": "${nodes.ask.text}"}},
        {"id": "stopped", "type": "end", "state": "rejected"},
        edges="""start > fork > pay > joined: approved
            pay > joined: rejected
            fork > ask > ship > joined: approved
            ship > joined: rejected
            joined > end""",
    )
    waiting = await run(mesh, flow, "Ann")
    (approval,) = waiting.approvals
    assert approval.requested.tool == "pay"
    assert to_json_struct(approval) == {"question": "Pay Ann?", "sum": 7}
    edited = message_pb2.Message(
        message_id="edit", task_id=waiting.task.id, role=message_pb2.ROLE_USER
    )
    part = edited.parts.add()
    update_struct(
        part.data.struct_value,
        {
            "approvalId": approval.requested.approval_id,
            "decision": "edit",
            "arguments": {"question": "", "sum": 9},
        },
    )
    asked = await mesh.client("people").send_message(
        agent="people", message=edited, submission=message_service_pb2.Submission(), timeout_s=60
    )
    assert isinstance(asked, snapshot_pb2.TaskSnapshot)
    assert status_texts(asked) == "a car: which colour?"
    shipping = await mesh.ask("red", agent="people", task_id=waiting.task.id)
    assert shipping.approvals[1].requested.tool == "ship"
    ended = await mesh.ask("approve", agent="people", task_id=waiting.task.id)

    assert data(ended) == {"sum": 9, "text": "the colour is red"}, status_texts(ended)
    assert (await steps(mesh, waiting.task.id)).count("pay waiting") == 1


def to_json_struct(approval: snapshot_pb2.ApprovalInfo) -> dict[str, Any]:
    return struct_json(approval.requested.arguments)


async def test_waits_end_by_time_by_a_message_that_fits_or_by_their_limit(
    mesh: SmallMesh, helpers: Helpers, tmp_path: Path
) -> None:
    user = await join_messages(mesh)
    flow = build(
        "waiter",
        {"id": "nap", "type": "wait", "duration": "10ms"},
        action_node("tell", handler="send", config={"recipient": "echo", "text": "wake up"}),
        action_node("shout", handler="broadcast", config={"room": "hall", "text": "all awake"}),
        {"id": "first", "type": "wait", "message": "user_message", "when": "message.text != 'no'"},
        {"id": "second", "type": "wait", "message": "user_message", "duration": "30s", "when": GO},
        {"id": "third", "type": "wait", "message": "user_message", "duration": "50ms", "when": GO},
        {
            "id": "end",
            "output": {
                "all": ["${nodes.first.text}", "${nodes.second.text}", "${nodes.third.label}"]
            },
        },
        edges="""start > nap > tell > shout > first > second > third > end: timeout
            third > end""",
    )
    await mesh.join(from_workflow(flow))
    task_id = await mesh.begin("hi", agent="waiter")
    await until_step(mesh, task_id, "first")
    task = (await mesh.get_task(task_id)).task
    for text in ("no", "yes", "go"):
        envelope = build_message(text, task.context_id)
        await user.send([envelope])
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)

    assert data(ended) == {"all": ["yes", "go", "timeout"]}, status_texts(ended)
    assert "wake up" in helpers.asked
    said = await user.read_page(EnvelopeFilter(room="hall"))
    assert [each.envelope.correlation_id for each in said.envelopes] == [task.context_id]
    # The messages to the workflow have begun no runs.
    request = task_service_pb2.ListTasksRequest(agent="waiter")
    listed = await mesh.client("waiter").tasks.ListTasks(request)
    runs = [await mesh.get_task(each.task_id) for each in listed.tasks]
    assert len(runs) > 3
    assert sum(bool(each.plans) for each in runs) == 1


def build_message(text: str, context_id: str) -> Any:
    return build_envelope(text, recipient="waiter", correlation_id=context_id)


def version(number: int, text: str) -> Workflow:
    return build(
        "story",
        {"id": "hold", "type": "approval", "question": "Go on?"},
        {"id": "end", "output": text},
        edges="start > hold > end: approved",
        version=number,
    )


async def test_a_task_ends_on_its_version_and_new_ones_take_the_current(
    mesh: SmallMesh, tmp_path: Path
) -> None:
    await mesh.join(from_workflow(version(1, "one")))
    old = await mesh.ask("hi", agent="story")
    versions = WorkflowVersions(FolderFiles(tmp_path))
    await versions.publish(version(2, "two"))

    new = await mesh.ask("hi", agent="story")
    await versions.roll_back("story")
    back = await mesh.ask("hi", agent="story")
    wanted = await send(mesh, "story", text="hi", metadata={"trunkline/workflow-version": 2})

    answers = [
        texts(await mesh.ask("approve", agent="story", task_id=task.task.id))
        for task in (old, new, back, wanted)
    ]
    assert answers == [["one"], ["two"], ["one"], ["two"]]
    unknown = await send(mesh, "story", text="hi", metadata={"trunkline/workflow-version": 7})
    assert "there is no version 7; there are: 1, 2" in status_texts(unknown)


async def test_a_run_ends_on_its_version_after_a_restart_with_a_newer_file(tmp_path: Path) -> None:
    async with open_mesh(from_workflow(version(1, "one")), data_dir=tmp_path) as before:
        waiting = await before.ask("hi")
        assert waiting.state is TaskState.INPUT_REQUIRED
    async with open_mesh(from_workflow(version(2, "two")), data_dir=tmp_path) as after:
        new = await after.ask("hi")
        assert (await after.ask("approve", task=waiting)).text == "one"
        assert (await after.ask("approve", task=new)).text == "two"
    with pytest.raises(ConfigurationError, match="give the changed workflow `version: 3`"):
        async with open_mesh(from_workflow(version(2, "changed")), data_dir=tmp_path):
            pass


async def test_a_run_has_the_time_limit_of_its_version(mesh: SmallMesh, helpers: Helpers) -> None:
    hurried, patient = (
        build(
            "hurried",
            agent_node("hold", "gated"),
            edges="start > hold > end",
            limits=limits,
            version=number,
        )
        for number, limits in ((1, {"time": "300ms"}), (2, {}))
    )
    await mesh.join(from_workflow(hurried, patient))
    task_id = await mesh.begin("hi", agent="hurried")
    failed = await send(
        mesh, "hurried", text="hi", metadata={"trunkline/workflow-version": hurried.version}
    )
    assert failed.task.status.state == State.TASK_STATE_FAILED
    assert "deadline" in status_texts(failed)

    # The newest version has no limit.
    helpers.gate.set()
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
    assert ended.task.status.state == State.TASK_STATE_COMPLETED


async def test_a_workflow_runs_another_one_of_a_version(mesh: SmallMesh, helpers: Helpers) -> None:
    inner = [
        build(
            "inner",
            {"id": "end", "output": {"n": f"${{input.n * {n}}}"}},
            edges="start > end",
            version=n,
        )
        for n in (1, 2)
    ]
    outer = build(
        "outer",
        {"id": "one", "type": "workflow", "workflow": "inner", "version": 1, "inputs": {"n": 21}},
        {"id": "two", "type": "workflow", "workflow": "inner", "inputs": {"n": "${last.data.n}"}},
        {"id": "end", "output": {"n": "${last.data.n}"}},
        edges="start > one > two > end",
    )
    await mesh.join(from_workflow(*inner))
    ended = await run(mesh, outer)

    assert data(ended) == {"n": 42}, status_texts(ended)
    assert [child.started.agent for child in ended.children] == ["inner", "inner"]


async def test_a_run_is_partial_if_the_last_answer_of_a_node_is(mesh: SmallMesh) -> None:
    @agent(name="half", description="Answers a part at first.")
    async def half(task: TaskContext) -> str:
        if task.text != "again":
            await task.mark_partial()
        return "again"

    await mesh.join(half)
    edges = "start > before > join > end"
    inner = build("inner", agent_node("before", "half"), action_node("join"), edges=edges)
    outer = build(
        "outer",
        {"id": "one", "type": "workflow", "workflow": "inner", "inputs": {"text": "${last.text}"}},
        edges="start > one > end",
    )
    looped = build(
        "looped",
        agent_node("ask", "half"),
        {
            "id": "check",
            "type": "condition",
            "cases": [{"label": "again", "when": "steps < 4"}],
            "otherwise": "done",
        },
        edges="""
            start > ask > check
            check > ask: again
            check > end: done
        """,
    )
    ends = [await run(mesh, workflow) for workflow in (inner, outer, looped)]
    assert [texts(end) for end in ends] == [["again"]] * 3
    outcomes = [find_outcome(end.task.status.state, end.task.metadata) for end in ends]
    assert outcomes == ["partial", "partial", "complete"]


async def test_a_paused_run_begins_no_node_and_one_that_waits_stays_paused(
    mesh: SmallMesh, helpers: Helpers
) -> None:
    flow = build(
        "paused",
        agent_node("hold", "gated"),
        {"id": "sure", "type": "approval", "question": "Sure?"},
        agent_node("say", "echo", "said"),
        edges="start > hold > sure > say: approved\nsay > end",
    )
    await mesh.join(from_workflow(flow))
    task_id = await mesh.begin("hi", agent="paused")
    await until_step(mesh, task_id, "hold")
    client = mesh.client("paused")
    paused = await client.pause_task(task_id, account="")
    assert read_member(paused.task.metadata, PAUSED_KEY)
    assert paused.task.status.state == State.TASK_STATE_WORKING
    helpers.gate.set()
    await until_step(mesh, task_id, "hold ok")
    assert "sure" not in await steps(mesh, task_id)

    await client.resume_task(task_id, account="")
    await mesh.until(task_id, lambda now: bool(now.approvals) and waits(now))
    again = await client.pause_task(task_id, account="")
    assert again.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    await mesh.client("paused").send_message(
        agent="paused",
        message=mesh.message("approve", task_id=task_id),
        submission=message_service_pb2.Submission(),
        return_immediately=True,
    )
    await mesh.until(task_id, lambda now: now.task.status.state == State.TASK_STATE_WORKING)
    assert "said" not in helpers.asked
    await client.resume_task(task_id, account="")
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)

    assert texts(ended) == ["said"]
    other = (await mesh.ask("x", agent="echo")).task.id
    with pytest.raises(UnsupportedOperationError, match="only workflows"):
        await mesh.client("echo").pause_task(other, account="")


def waits(task: snapshot_pb2.TaskSnapshot) -> bool:
    return task.task.status.state == State.TASK_STATE_INPUT_REQUIRED
