"""Agents that ask other agents, on a mesh in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from trunkline import (
    AgentAnswer,
    AgentCallError,
    ApprovalDecision,
    InvalidArgumentError,
    Part,
    TaskContext,
    TaskOutcome,
    TaskState,
    agent,
)
from trunkline.core.task_states import find_outcome
from trunkline.errors import UnsupportedOperationError
from trunkline.testing import Answer, Mesh, mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")

Code: TypeAlias = Callable[[TaskContext], Awaitable[str | None]]

runs: list[str] = []
codes: list[Code] = []


@pytest.fixture(autouse=True)
def _forget_runs() -> None:
    runs.clear()


@agent()
async def caller(task: TaskContext) -> str | None:
    """Runs the code of the test."""
    return await codes[-1](task)


async def call(m: Mesh, code: Code, text: str = "go") -> Answer:
    """Let the caller run this code, also in later turns and attempts."""
    codes.append(code)
    return await m.ask(text, agent="caller")


@agent(tags=["double"])
async def double(task: TaskContext) -> str:
    """Doubles a number."""
    runs.append(task.text)
    return str(2 * int(task.text))


@agent(tags=["count"])
async def count(task: TaskContext) -> AsyncGenerator[str, None]:
    """Counts to a number."""
    for number in range(int(task.text)):
        yield f"{number} "
        if number == 0:
            # The first piece is in the journal, and is read before the others.
            await task.working("counting")


@agent(tags=["fact"], input_modes=["text/plain", "application/json"])
async def fact(task: TaskContext) -> dict[str, Any]:
    """Answers with data."""
    given = [part.media_type for part in task.message.parts]
    return {"asked": task.text, "types": given}


@agent(tags=["fail"])
async def failing(task: TaskContext) -> None:
    """Fails."""
    await task.fail(f"no {task.text} today")


@agent(tags=["order"])
async def clerk(task: TaskContext) -> str | None:
    """Asks for a name."""
    if task.turn == 1:
        await task.require_input("Your name?")
        return None
    return f"noted {task.text}"


@agent(tags=["pay"])
async def cashier(task: TaskContext) -> str | None:
    """Pays after an approval."""
    answer = await task.request_approval("pay", {"sum": 7})
    if answer is None:
        runs.append("asked")
        return None
    runs.append(answer.decision.name)
    return "paid" if answer.decision is ApprovalDecision.APPROVED else f"not paid: {answer.reason}"


@agent(tags=["half"])
async def half(task: TaskContext) -> AsyncGenerator[str, None]:
    """Answers a part of a request, in two turns if it is to ask."""
    yield "the first half"
    await task.mark_partial()
    if task.text == "ask":
        await task.require_input("more?")


@agent()
async def broken(task: TaskContext) -> None:
    """Has a defect, or several."""
    if task.text == "several":
        raise ExceptionGroup("several", [ZeroDivisionError(), InvalidArgumentError("x", "is 1")])
    raise ZeroDivisionError


@agent()
async def mirror(task: TaskContext) -> str:
    """Asks itself."""
    return (await task.ask("mirror", task.text)).text


class Sleep:
    """What happens to the sleeper."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.canceled: list[str] = []


sleep = Sleep()


@agent()
async def sleeper(task: TaskContext) -> None:
    """Sleeps."""
    await task.working()
    sleep.started.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        sleep.canceled.append(task.text)
        raise


pieces: list[str] = []


@agent()
async def relay(task: TaskContext) -> AsyncGenerator[str, None]:
    """Passes a stream on."""
    stream = task.stream("count", task.text)
    with pytest.raises(UnsupportedOperationError, match="still writing"):
        stream.answer.text  # noqa: B018  it raises
    async for piece in stream:
        pieces.append(piece)
        yield piece
    assert stream.answer.text == "".join(pieces)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def m() -> AsyncIterator[Mesh]:
    agents = (caller, double, count, fact, failing, clerk, cashier, half)
    async with mesh(*agents, broken, mirror, sleeper, relay) as opened:
        yield opened


async def test_an_answer_has_text_parts_data_and_artifacts(m: Mesh) -> None:
    answers: list[AgentAnswer] = []

    async def ask(task: TaskContext) -> str:
        answers.append(await task.ask("double", "21"))
        answers.append(await task.ask("fact", Part(text="why")))
        answers.append(await task.ask("fact", {"n": [1, 2.5]}))
        return answers[0].text

    end = await call(m, ask)
    assert (end.state, end.text) == (TaskState.COMPLETED, "42")
    # The answers of others are not artifacts of the caller.
    assert len(end.artifacts) == 1
    number, data, told = answers
    assert (number.agent, number.state, number.text) == ("double", TaskState.COMPLETED, "42")
    assert [part.text for part in number.parts] == ["42"]
    assert [artifact.parts[0].text for artifact in number.artifacts] == ["42"]
    assert (data.text, data.data) == ("", [{"asked": "why", "types": [""]}])
    assert told.data == [{"asked": "", "types": ["application/json"]}]
    assert end.snapshot is not None
    children = [(child.started.step_id, child.finished.state) for child in end.snapshot.children]
    assert children == [(f"turn-1/{name}", 3) for name in ("double-1", "fact-1", "fact-2")]


async def test_a_stream_yields_the_text_and_has_the_answer(m: Mesh) -> None:
    whole = "".join(f"{number} " for number in range(300))
    assert (await m.ask("300", agent="relay")).text == "".join(pieces) == whole
    assert len(pieces) > 1


async def test_a_failure_raises_with_its_state_and_text(m: Mesh) -> None:
    errors: list[AgentCallError] = []

    async def ask(task: TaskContext) -> str:
        try:
            await task.ask("failing", "luck")
        except AgentCallError as error:
            errors.append(error)
        answer = await task.ask("failing", "luck", check=False)
        return f"{answer.state}: {answer.text}"

    assert (await call(m, ask)).text == "failed: no luck today"
    (error,) = errors
    assert (error.agent, error.state, error.text) == ("failing", TaskState.FAILED, "no luck today")


async def test_an_answer_says_its_outcome(m: Mesh) -> None:
    answers: list[AgentAnswer] = []

    async def ask(task: TaskContext) -> str:
        for name, text in (("double", "1"), ("failing", "luck"), ("half", "go"), ("half", "ask")):
            answers.append(await task.ask(name, text, check=False))
        if answers[2].outcome is TaskOutcome.PARTIAL:
            await task.mark_partial()
        return answers[2].text

    end = await call(m, ask)
    own = await m.ask("ask", agent="half")
    assert own.state is TaskState.INPUT_REQUIRED
    later = await m.ask("go on", task=own)
    assert [answer.outcome for answer in answers] == ["complete", "failed", "partial", None]
    for ended in (end, later):
        assert ended.snapshot is not None
        task = ended.snapshot.task
        assert find_outcome(task.status.state, task.metadata) is TaskOutcome.PARTIAL


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("failing", "luck", "agent 'failing' failed: no luck today"),
        ("clerk", "order", "agent 'clerk' asks: Your name?"),
        ("nobody", "luck", "agent: 'nobody' is not on the mesh; there are: broken, caller, "),
    ],
)
@pytest.mark.parametrize("in_a_group", [False, True])
async def test_what_the_caller_does_not_handle_is_its_reason(
    m: Mesh, name: str, text: str, reason: str, *, in_a_group: bool
) -> None:
    async def ask(task: TaskContext) -> str:
        if not in_a_group:
            return (await task.ask(name, text)).text
        async with asyncio.TaskGroup() as group:
            group.create_task(task.ask(name, text))
            group.create_task(task.ask("double", "21"))
        return ""

    end = await call(m, ask)
    assert (end.state, end.text[: len(reason)]) == (TaskState.FAILED, reason)
    # A question says how to handle it.
    assert ("check=False" in end.text) == (name == "clerk")


async def test_a_defect_is_named_once_without_its_text(m: Mesh) -> None:
    async def ask(task: TaskContext) -> str:
        return (await task.ask("broken", "go")).text

    assert (await call(m, ask)).text.count("'broken'") == 1
    assert "ZeroDivisionError (at " in (await m.ask("several", agent="broken")).text


async def test_content_that_cannot_be_sent_is_refused(m: Mesh) -> None:
    contents: list[Any] = [5, None, ["a"], {"set": {1}}, {"n": 10**309}]

    async def ask(task: TaskContext) -> str:
        for content in contents:
            with pytest.raises(InvalidArgumentError, match="content"):
                await task.ask("double", content)
        return "refused"

    assert (await call(m, ask)).text == "refused"
    assert not runs


async def test_a_question_goes_on_with_the_id_of_its_task(m: Mesh) -> None:
    async def ask(task: TaskContext) -> str | None:
        asked = task.questions[0].task_id if task.questions else ""
        answer = await task.ask("clerk", task.text, task_id=asked, check=False)
        if answer.is_question:
            await task.require_input(answer.text)
            return None
        return answer.text

    question = await call(m, ask, "write this down")
    assert (question.state, question.text) == (TaskState.INPUT_REQUIRED, "Your name?")
    end = await m.ask("Ada", task=question)
    assert end.text == "noted Ada"
    assert end.snapshot is not None
    assert len(end.snapshot.children) == 1


@pytest.mark.parametrize(
    ("words", "text", "decision"),
    [("approve", "2: paid", "APPROVED"), ("reject too much", "2: not paid: too much", "REJECTED")],
)
async def test_an_approval_of_a_child_is_asked_of_the_caller(
    m: Mesh, words: str, text: str, decision: str
) -> None:
    inputs: list[tuple[int, str]] = []

    async def ask(task: TaskContext) -> str:
        inputs.append((task.turn, task.text))
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(task.ask("cashier", "pay"))
            number = group.create_task(task.ask("double", "1"))
        return f"{number.result().text}: {paid.result().text}"

    question = await call(m, ask, "the bill please")
    assert question.state is TaskState.INPUT_REQUIRED
    assert "caller → cashier: pay" in question.status_text
    # Another message keeps the approval open.
    still = await m.ask("hello?", task=question)
    assert (still.state, len(still.approvals)) == (TaskState.INPUT_REQUIRED, 1)
    end = await m.ask(words, task=question)
    assert (end.state, end.text) == (TaskState.COMPLETED, text)
    # The code ran again with the same input, and every agent ran once.
    assert set(inputs) == {(1, "the bill please")}
    assert sorted(runs) == sorted(["1", "asked", decision])


async def test_circles_are_named(m: Mesh) -> None:
    circle = await m.ask("go", agent="mirror")
    assert circle.state is TaskState.FAILED
    assert "mirror > mirror > mirror" in circle.text
    assert "raise circles" in circle.text


async def test_a_cancel_reaches_the_children(m: Mesh) -> None:
    async def wait(task: TaskContext) -> str:
        return (await task.ask("sleeper", task.text)).text

    async def leave(task: TaskContext) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await task.ask("sleeper", "short")
        async for _ in task.stream("count", "1000"):
            break
        return "left"

    codes.append(wait)
    asked = await m.submit("long", agent="caller")
    await asyncio.wait_for(sleep.started.wait(), 10)
    canceled = await m.cancel(asked)
    left = await call(m, leave)
    assert left.text == "left"
    for end in (canceled, left):
        assert end.snapshot is not None
        child = await m.wait_until(end.snapshot.children[0].started.task_id)
        assert child.state is TaskState.CANCELED
    assert sleep.canceled == ["long", "short"]


async def test_a_child_of_no_task_can_not_be_answered(m: Mesh) -> None:
    async def ask(task: TaskContext) -> str:
        await task.ask("double", "1", task_id="someone-else")
        return "never"

    end = await call(m, ask)
    assert end.state is TaskState.FAILED
    assert "someone-else is no task that agent 'double' was asked for here" in end.text
