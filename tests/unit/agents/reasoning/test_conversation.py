"""Conversations are stored by agent, context and account."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from trunkline.agents.reasoning.conversation import MAX_CHARS, MAX_MESSAGES, ConversationHistory
from trunkline.agents.reasoning.message_repair import build_feedback
from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import open_memory_of_process

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """The part of a task that names its conversation."""

    memory: AgentMemory
    id: str
    turn: int = 1
    agent: str = "math"
    context_id: str = "c"
    account: str = "anonymous"

    @property
    def task(self) -> "TurnRuntime":
        return cast("TurnRuntime", self)


@pytest.fixture
async def memory() -> AsyncIterator[AgentMemory]:
    opened = open_memory_of_process()
    yield opened
    await opened.close()


async def append(turn: Turn, *messages: BaseMessage) -> None:
    """Append the messages of a turn."""
    await (await ConversationHistory.load(turn.task)).append(messages)


async def append_exchange(turn: Turn, question: str = "q", answer: str = "a") -> None:
    await append(turn, HumanMessage(question), AIMessage(answer))


async def earlier_texts(turn: Turn) -> list[str]:
    """Return the texts that a turn sees of its conversation."""
    return [str(message.text) for message in await earlier_messages(turn)]


async def earlier_messages(turn: Turn) -> Sequence[BaseMessage]:
    return (await ConversationHistory.load(turn.task)).earlier_messages()


async def test_other_agents_contexts_and_accounts_see_nothing(memory: AgentMemory) -> None:
    await append_exchange(Turn(memory, "t1"))
    for other in (
        Turn(memory, "t2", agent="currency"),
        Turn(memory, "t2", context_id="d"),
        Turn(memory, "t2", account="other"),
    ):
        assert await earlier_texts(other) == []


async def test_messages_of_turns_that_run_at_once_are_kept(memory: AgentMemory) -> None:
    turns = [Turn(memory, f"t{number}") for number in range(3)]
    histories = [await ConversationHistory.load(turn.task) for turn in turns]
    for number, history in enumerate(histories):
        await history.append([HumanMessage(f"q{number}"), AIMessage(f"a{number}")])
    assert await earlier_texts(Turn(memory, "x")) == ["q0", "a0", "q1", "a1", "q2", "a2"]


async def test_a_repeated_attempt_replaces_its_messages(memory: AgentMemory) -> None:
    await append_exchange(Turn(memory, "t1"), "q", "first")
    await append_exchange(Turn(memory, "t2"), "r", "other")
    await append_exchange(Turn(memory, "t1"), "q", "second")
    assert await earlier_texts(Turn(memory, "t3")) == ["r", "other", "q", "second"]


async def test_a_task_that_waited_for_input_continues_after_newer_messages(
    memory: AgentMemory,
) -> None:
    await append_exchange(Turn(memory, "t1"), "convert", "Which currency?")
    await append_exchange(Turn(memory, "t2"), "beside", "done")
    assert await earlier_texts(Turn(memory, "t1", turn=2)) == [
        "beside",
        "done",
        "convert",
        "Which currency?",
    ]


async def test_a_conversation_is_bounded_and_begins_with_a_question(memory: AgentMemory) -> None:
    for number in range(MAX_MESSAGES):
        call = tool_call(name="t", args={}, id=f"c{number}")
        await append(
            Turn(memory, f"t{number}"),
            HumanMessage(f"q{number}"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("r", tool_call_id=f"c{number}"),
            AIMessage(f"a{number}"),
        )
    messages = await earlier_messages(Turn(memory, "x"))
    assert len(messages) == MAX_MESSAGES
    assert isinstance(messages[0], HumanMessage)
    assert messages[-1].text == f"a{MAX_MESSAGES - 1}"

    for number in range(8):
        await append_exchange(Turn(memory, f"long{number}"), "x" * 100_000, "y" * 100_000)
    assert (
        0
        < sum(len(message.text) for message in await earlier_messages(Turn(memory, "x")))
        <= MAX_CHARS
    )


async def test_a_rejected_answer_is_not_remembered(memory: AgentMemory) -> None:
    await append(
        Turn(memory, "t1"),
        HumanMessage("q"),
        AIMessage("nothing"),
        build_feedback("That was no answer."),
        AIMessage("a"),
    )
    assert await earlier_texts(Turn(memory, "t2")) == ["q", "a"]
