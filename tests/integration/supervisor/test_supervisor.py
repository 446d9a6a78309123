"""A supervisor over real hosts: its answers, and the plan and reasons in its journal."""

import asyncio
from collections.abc import AsyncIterator, Set

import pytest
import pytest_asyncio

from harness.agents.inline_agents import NOTHING, status_texts, texts
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.agents import FunctionAgent, agent
from trunkline.core.json_values import has_member, message_to_dict, read_member
from trunkline.journal.fold import Fold
from trunkline.rules.planner import RulesPlanner
from trunkline.supervisor import Supervisor
from trunkline.supervisor.answer import combine_outcomes
from trunkline.supervisor.recovery import recover_state
from trunkline.tasks.context import TaskContext
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_pb2
from trunkline_agents.echo.agent import echo

State = task_pb2.TaskState


def make_agent(name: str, answer: str, *tags: str) -> FunctionAgent:
    """An agent with a constant answer."""

    @agent(name=name, description=f"Says {answer}.", tags=tags, examples=[f"a {name} question"])
    async def same(_task: TaskContext) -> str:
        return answer

    return same


def synthesis(snapshot: snapshot_pb2.TaskSnapshot) -> list[str]:
    """Return the texts of the answers that the task combined."""
    return [
        text
        for text, info in zip(texts(snapshot), snapshot.artifacts, strict=True)
        if info.kind == event_pb2.ARTIFACT_KIND_SYNTHESIS
    ]


@agent(name="terse", description="Says it in its status.", tags=["terse"])
async def terse(task: TaskContext) -> None:
    await task.complete("that is all" if "words" in task.text else None)


@agent(name="hidden", description="Not for everyone.", tags=["hello"], routable=False)
async def hidden(_task: TaskContext) -> str:
    return "found"


@agent(name="paint", description="Paints.", tags=["paint"])
async def paint(task: TaskContext) -> None:
    if task.turn > 1:
        await task.fail("There is no paint left.")
    await task.require_input("Which paint?" if task.text else "'' is nothing to paint.")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def office(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SmallMesh]:
    """A mesh whose agents keep nothing between the requests of the tables below."""
    rates = make_agent("rates", "100 USD = 92.34 EUR (of today)", "USD")
    red = make_agent("red", "red it is", "red")
    async with open_small_mesh(tmp_path_factory.mktemp("office")) as mesh:
        await mesh.join(echo, terse, hidden, paint, rates, red)
        await mesh.supervise()
        yield mesh


FUSE = 'Could not answer "fail the fuse blew": the fuse blew (agent echo).'
NO_PAINT = 'Could not answer "paint the fence": There is no paint left (agent paint).'
BOTH_FAIL = (
    'Could not answer "fail one": one (agent echo).\n'
    'Could not answer "reject two": two (agent echo).'
)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        # The answer of one step is exactly the text of its agent.
        ("echo  two  spaces\nand a line", " two  spaces\nand a line"),
        ("@echo message straight back", "straight back"),
        ("convert 100 USD, then echo {1} to me", "100 USD = 92.34 EUR (of today)\n92.34 to me"),
        ("count 2, and go red now, and @echo fail the fuse blew", f"1 2 \nred it is\n{FUSE}"),
        # A status is quoted where an agent leaves no artifact.
        ("terse words", "that is all"),
        ("@terse nothing, and @terse words", "terse left no answer.\nthat is all"),
    ],
)
async def test_a_request_is_answered(office: SmallMesh, question: str, answer: str) -> None:
    snapshot = await office.ask(question)
    assert snapshot.task.status.state == State.TASK_STATE_COMPLETED
    assert synthesis(snapshot) == [answer]
    states = [child.finished.state for child in snapshot.children]
    assert [call.finished.is_error for call in snapshot.tool_calls] == [
        state != State.TASK_STATE_COMPLETED for state in states
    ]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("question", "state", "text", "children"),
    [
        ("@echo fail one @echo reject two", State.TASK_STATE_FAILED, BOTH_FAIL, 2),
        ("terse nothing", State.TASK_STATE_COMPLETED, "terse left no answer.", 1),
        # An agent that is named without a question asks its own.
        ("@paint", State.TASK_STATE_INPUT_REQUIRED, "'' is nothing to paint.", 1),
        (
            "; ".join(f"echo {n}" for n in range(20)),
            State.TASK_STATE_INPUT_REQUIRED,
            "These are 20 questions; ask at most 16 at once.",
            0,
        ),
    ],
)
async def test_a_request_without_an_answer_ends_with_the_reason(
    office: SmallMesh, question: str, state: task_pb2.TaskState.ValueType, text: str, children: int
) -> None:
    snapshot = await office.ask(question)
    assert snapshot.task.status.state == state
    assert status_texts(snapshot) == text
    assert len(snapshot.children) == children
    assert not synthesis(snapshot)


@pytest.mark.asyncio(loop_scope="module")
async def test_for_an_unroutable_question_the_supervisor_asks_back_and_routes_the_reply(
    office: SmallMesh,
) -> None:
    waiting = await office.ask("who wrote Hamlet")
    answered = await office.ask("echo nobody knows", task_id=waiting.task.id)

    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert 'echo: "echo hello"' in status_texts(waiting)
    assert waiting.routes[0].agent == ""
    assert answered.task.status.state == State.TASK_STATE_COMPLETED
    assert synthesis(answered) == ["nobody knows"]
    # Agents that are not routable are neither offered nor called.
    for question in ("@hidden hello", "say hello to Bob"):
        waiting = await office.ask(question)
        assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
        assert "Not for everyone" not in status_texts(waiting)


@pytest.mark.asyncio(loop_scope="module")
async def test_questions_of_agents_become_the_tasks_one_after_the_other(office: SmallMesh) -> None:
    first = await office.ask("echo done @echo ask Which colour? @echo ask Which size?")
    second = await office.ask("blue and green", task_id=first.task.id)
    third = await office.ask("small", task_id=first.task.id)

    assert first.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert (synthesis(first), status_texts(first)) == (["done"], "Which colour?")
    answers = ["done", "answer: blue and green"]
    assert (synthesis(second), status_texts(second)) == (answers, "Which size?")
    assert synthesis(third) == [*answers, "answer: small"]
    assert third.task.status.state == State.TASK_STATE_COMPLETED
    asked = [await office.get_task(child.started.task_id) for child in third.children[1:]]
    assert [child.turn for child in asked] == [2, 2]

    waiting = await office.ask("paint the fence")
    failed = await office.ask("blue", task_id=waiting.task.id)
    assert status_texts(failed) == NO_PAINT


async def test_the_agents_that_fit_are_named_while_langgraph_loads(mesh: SmallMesh) -> None:
    named: list[Set[str]] = []
    supervisor = Supervisor(mesh.directory, planner=RulesPlanner())
    supervisor.on_load = named.append
    await mesh.join(echo, make_agent("red", "red", "red"))
    await mesh.join(supervisor)

    snapshot = await mesh.ask("count 2, and go red now")
    await mesh.ask("echo hi")

    # Once it is loaded, agents start their servers soon enough themselves.
    assert named == [{"echo", "red"}]
    # The prediction records nothing.
    assert [route.agent for route in snapshot.routes] == ["echo", "red"]


async def test_the_journal_has_the_choice_and_its_reason_before_the_child_is_called(
    mesh: SmallMesh,
) -> None:
    await mesh.join(echo)
    await mesh.supervise()

    snapshot = await mesh.ask("count 3")
    journal = await mesh.events(snapshot.task.id)
    kinds = [str(event.WhichOneof("event")) for batch in journal for event in batch.events]

    (child,) = snapshot.children
    assert child.finished.state == State.TASK_STATE_COMPLETED
    assert (await mesh.get_task(child.started.task_id)).parent.path == ["supervisor"]
    (route,) = snapshot.routes
    assert (route.agent, route.step_id, route.text) == ("echo", "step-1", "count 3")
    assert route.confidence > 0.5
    metadata = message_to_dict(snapshot.task.metadata)
    assert metadata["trunkline/route"]["agent"] == "echo"
    assert metadata["trunkline/route"]["confidence"] == route.confidence
    assert metadata["trunkline/route"]["reasons"] == ["skill 'echo': count"]
    order = ["plan", "route_decided", "child_started", "tool_started", "delta", "tool_finished"]
    assert sorted(order, key=kinds.index) == order
    assert kinds.index("tool_finished") < kinds.index("child_finished")
    assert kinds[-1] == "status"


async def test_the_plan_is_streamed_by_token_and_then_written_whole(mesh: SmallMesh) -> None:
    await mesh.join(echo)
    await mesh.supervise()

    snapshot = await mesh.ask("count 3 and echo done")
    journal = await mesh.events(snapshot.task.id)
    tokens = [
        text
        for batch in journal
        for event in batch.events
        if event.HasField("plan")
        for text in event.plan.texts
    ]

    (plan,) = snapshot.plans
    assert plan.text == "".join(tokens) == "1. echo: count 3\n2. echo: echo done"
    assert len(tokens) > 4
    assert [(step.step_id, step.agent, step.text) for step in plan.steps] == [
        ("step-1", "echo", "count 3"),
        ("step-2", "echo", "echo done"),
    ]


async def test_an_answer_with_a_part_missing_is_partial_and_names_who_answered(
    mesh: SmallMesh,
) -> None:
    await mesh.join(echo)
    await mesh.supervise(name="office", agents=["echo"], tags=["accounts"])
    await mesh.supervise(agents=["office"])

    partial = await mesh.ask("@office echo one, and @echo fail")
    complete = await mesh.ask("@office echo one")

    # The nested supervisor hands it upward.
    assert read_member(partial.task.metadata, "trunkline/outcome") == "partial"
    assert [child.finished.partial for child in partial.children] == [True]
    assert read_member(partial.task.artifacts[-1].metadata, "trunkline/agents") == ["echo"]
    assert partial.task.status.state == State.TASK_STATE_COMPLETED
    assert not has_member(complete.task.metadata, "trunkline/outcome")


async def test_a_request_with_only_files_has_their_names_as_title(mesh: SmallMesh) -> None:
    messages_received: list[message_pb2.Message] = []

    @agent(name="reader", description="Reads files.", tags=["read"])
    async def reader(task: TaskContext) -> None:
        messages_received.append(task.message)
        await task.fail("it is torn")

    await mesh.join(reader)
    await mesh.supervise(default_agent="reader")
    for text in ("", "@reader"):
        message = mesh.message(text)
        message.parts.add(raw=b"\x00", filename="old/leave.pdf")
        message.parts.add(url="https://example.org/a/pay%20slip.pdf?x=1")
        answer = await mesh.client("supervisor").send_message(
            agent="supervisor", message=message, submission=NOTHING
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        assert 'Could not answer "leave.pdf, pay slip.pdf": it is torn' in status_texts(answer)
        (plan,) = answer.plans
        assert [step.text for step in plan.steps] == ["leave.pdf, pay slip.pdf"]
        # A title is not the file's text; a host that resumes from the journal distinguishes them
        # too.
        assert [part.text for part in messages_received[-1].parts] == ["", ""]
        fold = snapshot_pb2.TaskSnapshot()
        state = recover_state(fold, answer, text, files="leave.pdf, pay slip.pdf")
        assert state is not None
        assert [step.text for step in state["steps"]] == [""]


async def test_a_failed_step_goes_to_the_next_best_agent_once(mesh: SmallMesh) -> None:
    @agent(name="first", description="Fails.", tags=["red", "green"])
    async def first(task: TaskContext) -> None:
        await task.fail("not today")

    await mesh.join(first, make_agent("second", "done by the second", "red"))
    await mesh.supervise()

    snapshot = await mesh.ask("red and green")

    assert synthesis(snapshot) == ["done by the second"]
    assert [route.agent for route in snapshot.routes] == ["first", "second"]
    assert snapshot.plans[0].revision == 2
    assert [child.started.agent for child in snapshot.children] == ["first", "second"]


async def test_a_failure_is_named_if_the_next_best_agent_has_no_answer_either(
    mesh: SmallMesh,
) -> None:
    @agent(name="first", description="Fails.", tags=["red", "green"])
    async def first(task: TaskContext) -> None:
        await task.fail("not today")

    @agent(name="second", description="Asks, or fails.", tags=["red"])
    async def second(task: TaskContext) -> None:
        if "dark" in task.text:
            await task.fail("too dark")
        await task.require_input("Which red?")

    await mesh.join(first, second)
    await mesh.supervise()

    asked = await mesh.ask("red and green")
    failed = await mesh.ask("dark red and green")
    fold = Fold(failed.task.id)
    fold.apply((await mesh.events(failed.task.id))[0])
    recovered = recover_state(fold.snapshot(), failed, "dark red and green")

    reason = 'Could not answer "red and green": not today (agent first).'
    assert status_texts(asked) == f"{reason}\nWhich red?"
    reasons = (
        'Could not answer "dark red and green": not today (agent first).\n'
        'Could not answer "dark red and green": too dark (agent second).'
    )
    assert status_texts(failed) == reasons
    # A takeover of the task says the same.
    assert recovered is not None
    assert combine_outcomes(recovered["steps"], recovered["outcomes"]).status_text == reasons


async def test_a_hundred_tasks_at_once_do_not_mix(mesh: SmallMesh) -> None:
    await mesh.join(echo)
    await mesh.supervise()
    answers: dict[int, snapshot_pb2.TaskSnapshot] = {}

    async def ask(number: int) -> None:
        answers[number] = await mesh.ask(f"echo first {number} and count {number + 1}")

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(ask(number))

    for number, snapshot in answers.items():
        counted = "".join(f"{n} " for n in range(1, number + 2))
        assert synthesis(snapshot) == [f"first {number}\n{counted}"]
        assert len(snapshot.children) == 2
