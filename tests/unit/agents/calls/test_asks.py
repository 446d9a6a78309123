"""Agents that ask other agents, on a mesh in this process."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

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
from trunkline.testing import Answer, mesh

runs: list[str] = []


@pytest.fixture(autouse=True)
def _forget_runs() -> None:
    runs.clear()


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


async def test_an_answer_has_text_parts_data_and_artifacts() -> None:
    answers: list[AgentAnswer] = []

    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks."""
        answers.append(await task.ask("double", "21"))
        answers.append(await task.ask("fact", Part(text="why")))
        answers.append(await task.ask("fact", {"n": [1, 2.5]}))
        return answers[0].text

    async with mesh(caller, double, fact) as m:
        end = await m.ask("go")
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
    assert children == [(f"turn-1/{call}", 3) for call in ("double-1", "fact-1", "fact-2")]


async def test_several_calls_at_once() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks three at once."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(task.ask("double", str(number))) for number in range(3)]
        return " ".join(call.result().text for call in asked)

    async with mesh(caller, double) as m:
        assert (await m.ask("go")).text == "0 2 4"


async def test_a_stream_yields_the_text_and_has_the_answer() -> None:
    pieces: list[str] = []

    @agent()
    async def caller(task: TaskContext) -> AsyncGenerator[str, None]:
        """Passes a stream on."""
        stream = task.stream("count", task.text)
        with pytest.raises(UnsupportedOperationError, match="still writing"):
            stream.answer.text  # noqa: B018  it raises
        async for piece in stream:
            pieces.append(piece)
            yield piece
        assert stream.answer.text == "".join(pieces)

    whole = "".join(f"{number} " for number in range(300))
    async with mesh(caller, count) as m:
        assert (await m.ask("300")).text == whole
    assert "".join(pieces) == whole
    assert len(pieces) > 1


async def test_a_failure_raises_with_its_state_and_text() -> None:
    errors: list[AgentCallError] = []

    @agent()
    async def caller(task: TaskContext) -> str:
        """Handles a failure."""
        try:
            await task.ask("failing", "luck")
        except AgentCallError as error:
            errors.append(error)
        answer = await task.ask("failing", "luck", check=False)
        return f"{answer.state}: {answer.text}"

    async with mesh(caller, failing) as m:
        end = await m.ask("go")
        assert end.text == "failed: no luck today"
    assert (errors[0].agent, errors[0].state, errors[0].text) == (
        "failing",
        TaskState.FAILED,
        "no luck today",
    )


@agent(tags=["half"])
async def half(task: TaskContext) -> AsyncGenerator[str, None]:
    """Answers a part of a request, in two turns if it is to ask."""
    yield "the first half"
    await task.mark_partial()
    if task.text == "ask":
        await task.require_input("more?")


async def test_an_answer_says_its_outcome() -> None:
    answers: list[AgentAnswer] = []

    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks."""
        for name, text in (("double", "1"), ("failing", "luck"), ("half", "go"), ("half", "ask")):
            answers.append(await task.ask(name, text, check=False))
        if answers[2].outcome is TaskOutcome.PARTIAL:
            await task.mark_partial()
        return answers[2].text

    async with mesh(caller, double, failing, half) as m:
        end = await m.ask("go")
        own = await m.ask("ask", agent="half")
        assert own.state is TaskState.INPUT_REQUIRED
        later = await m.ask("go on", task=own)
    assert [answer.outcome for answer in answers] == ["complete", "failed", "partial", None]
    for ended in (end, later):
        assert ended.snapshot is not None
        task = ended.snapshot.task
        assert find_outcome(task.status.state, task.metadata) is TaskOutcome.PARTIAL


async def test_an_unhandled_failure_is_the_reason_of_the_caller() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Handles nothing."""
        return (await task.ask("failing", "luck")).text

    async with mesh(caller, failing) as m:
        end = await m.ask("go")
    assert (end.state, end.text) == (
        TaskState.FAILED,
        "agent 'failing' failed: no luck today",
    )


async def test_an_unhandled_failure_of_calls_at_once_is_the_reason_of_the_caller() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Handles nothing."""
        async with asyncio.TaskGroup() as group:
            group.create_task(task.ask("failing", "luck"))
            group.create_task(task.ask("double", "21"))
        return ""

    @agent()
    async def stranger(task: TaskContext) -> str:
        """Asks an agent that is not there."""
        async with asyncio.TaskGroup() as group:
            group.create_task(task.ask("nobody", "luck"))
        return ""

    @agent()
    async def broken(_: TaskContext) -> str:
        """Has a defect, which is nobody's business."""
        raise ExceptionGroup("several", [ZeroDivisionError(), InvalidArgumentError("x", "is 1")])

    async with mesh(caller, stranger, broken, failing, double) as m:
        end = await m.ask("go", agent="caller")
        assert (end.state, end.text) == (TaskState.FAILED, "agent 'failing' failed: no luck today")
        assert "'nobody' is not on the mesh" in (await m.ask("go", agent="stranger")).text
        assert "ZeroDivisionError (at " in (await m.ask("go", agent="broken")).text


async def test_an_unhandled_question_says_how_to_handle_it() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Expects no question."""
        return (await task.ask("clerk", "order")).text

    async with mesh(caller, clerk) as m:
        end = await m.ask("go")
    assert end.text.startswith("agent 'clerk' asks: Your name?")
    assert "check=False" in end.text


async def test_a_defect_of_another_agent_is_named_once() -> None:
    @agent()
    async def broken(_: TaskContext) -> str:
        """Has a defect."""
        raise ZeroDivisionError

    @agent()
    async def caller(task: TaskContext) -> str:
        """Handles nothing."""
        return (await task.ask("broken", "go")).text

    async with mesh(caller, broken) as m:
        assert (await m.ask("go")).text.count("'broken'") == 1


@pytest.mark.parametrize("content", [5, None, ["a"], {"set": {1}}, {"n": 10**309}])
async def test_content_that_cannot_be_sent_is_refused(
    content: Any,
) -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Sends what can't be sent."""
        with pytest.raises(InvalidArgumentError, match="content"):
            await task.ask("double", content)
        return "refused"

    async with mesh(caller, double) as m:
        assert (await m.ask("go")).text == "refused"
    assert not runs


async def test_a_question_goes_on_with_the_id_of_its_task() -> None:
    @agent()
    async def caller(task: TaskContext) -> str | None:
        """Passes questions on."""
        asked = task.questions[0] if task.questions else None
        answer = await task.ask(
            "clerk", task.text, task_id=asked.task_id if asked else "", check=False
        )
        if answer.is_question:
            await task.require_input(answer.text)
            return None
        return answer.text

    async with mesh(caller, clerk) as m:
        question = await m.ask("write this down")
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
    words: str, text: str, decision: str
) -> None:
    inputs: list[tuple[int, str]] = []

    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks two at once, of which one needs an approval."""
        inputs.append((task.turn, task.text))
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(task.ask("cashier", "pay"))
            number = group.create_task(task.ask("double", "1"))
        return f"{number.result().text}: {paid.result().text}"

    async with mesh(caller, cashier, double) as m:
        question = await m.ask("the bill please")
        assert question.state is TaskState.INPUT_REQUIRED
        assert "caller → cashier: pay" in question.status_text
        end = await m.ask(words, task=question)
    assert (end.state, end.text) == (TaskState.COMPLETED, text)
    # The code ran again with the same input, and every agent ran once.
    assert inputs == [(1, "the bill please")] * 2
    assert sorted(runs) == sorted(["1", "asked", decision])


async def test_another_message_keeps_the_approval_open() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks for money."""
        return (await task.ask("cashier", "pay")).text

    async with mesh(caller, cashier) as m:
        question = await m.ask("the bill please")
        still = await m.ask("hello?", task=question)
        assert (still.state, len(still.approvals)) == (TaskState.INPUT_REQUIRED, 1)
        assert (await m.ask("approve", task=question)).text == "paid"
    assert runs == ["asked", "APPROVED"]


async def test_unknown_agents_and_circles_are_named() -> None:
    @agent(name="mirror")
    async def mirror(task: TaskContext) -> str:
        """Asks itself."""
        return (await task.ask("mirror", task.text)).text

    @agent()
    async def caller(task: TaskContext) -> str:
        """Asks an agent that is not there."""
        with pytest.raises(InvalidArgumentError) as caught:
            await task.ask("dubble", "1")
        return str(caught.value)

    async with mesh(caller, mirror) as m:
        text = (await m.ask("go")).text
        assert text == "agent: 'dubble' is not on the mesh; there are: caller, mirror"
        circle = await m.ask("go", agent="mirror")
    assert circle.state is TaskState.FAILED
    assert "mirror > mirror > mirror" in circle.text
    assert "raise circles" in circle.text


async def test_a_cancel_reaches_the_children() -> None:
    started = asyncio.Event()
    canceled: list[str] = []

    @agent()
    async def sleeper(task: TaskContext) -> None:
        """Sleeps."""
        await task.working()
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled.append(task.text)
            raise

    @agent()
    async def caller(task: TaskContext) -> str:
        """Waits for a sleeper."""
        return (await task.ask("sleeper", task.text)).text

    @agent()
    async def hasty(task: TaskContext) -> str:
        """Waits for a moment, and leaves a stream early."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await task.ask("sleeper", "short")
        async for _ in task.stream("count", "1000"):
            break
        return "left"

    async with mesh(caller, hasty, sleeper, count) as m:
        asked = await m.submit("long")
        await asyncio.wait_for(started.wait(), 10)
        end = await m.cancel(asked)
        assert end.snapshot is not None
        child = await m.wait_until(end.snapshot.children[0].started.task_id)
        assert child.state is TaskState.CANCELED
        end = await m.ask("go", agent="hasty")
        assert end.text == "left"
        assert end.snapshot is not None
        slept = await m.wait_until(end.snapshot.children[0].started.task_id)
        assert slept.state is TaskState.CANCELED
    assert canceled == ["long", "short"]


async def test_a_child_of_no_task_can_not_be_answered() -> None:
    @agent()
    async def caller(task: TaskContext) -> str:
        """Answers a task that it did not ask for."""
        await task.ask("double", "1", task_id="someone-else")
        return "never"

    async with mesh(caller, double) as m:
        end: Answer = await m.ask("go")
    assert end.state is TaskState.FAILED
    assert "someone-else is no task that agent 'double' was asked for here" in end.text
