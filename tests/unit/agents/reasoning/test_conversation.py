"""Conversations are stored by agent, context and account, across the files of several hosts."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.checkpoint.sqlite import SqliteSaver

from trunkline.agents.reasoning.checkpoint_files import open_checkpoint_file
from trunkline.agents.reasoning.conversation import MAX_CHARS, MAX_MESSAGES, ConversationHistory
from trunkline.agents.reasoning.message_repair import build_feedback

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """The part of a task that names its conversation."""

    id: str
    turn: int = 1
    agent: str = "math"
    context_id: str = "c"
    account: str = "anonymous"

    @property
    def task(self) -> "TurnRuntime":
        return cast("TurnRuntime", self)


def append(path: Path, turn: Turn, *messages: BaseMessage) -> None:
    """Append the messages of a turn."""
    with open_checkpoint_file(path) as file:
        ConversationHistory(file, turn.task).append(messages)


def append_exchange(path: Path, turn: Turn, question: str = "q", answer: str = "a") -> None:
    append(path, turn, HumanMessage(question), AIMessage(answer))


def earlier_texts(path: Path, turn: Turn) -> list[str]:
    """Return the texts that a turn sees of its conversation."""
    return [str(message.text) for message in earlier_messages(path, turn)]


def earlier_messages(path: Path, turn: Turn) -> Sequence[BaseMessage]:
    with open_checkpoint_file(path) as file:
        return ConversationHistory(file, turn.task).earlier_messages()


def test_other_agents_contexts_and_accounts_see_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append_exchange(path, Turn("t1"))
    for other in (
        Turn("t2", agent="currency"),
        Turn("t2", context_id="d"),
        Turn("t2", account="other"),
    ):
        assert earlier_texts(path, other) == []


def test_the_newest_messages_are_read_from_any_hosts_file(tmp_path: Path) -> None:
    own_file, other_file = tmp_path / "a.checkpoints", tmp_path / "b.checkpoints"
    append_exchange(own_file, Turn("t1"), "one", "1")
    append_exchange(other_file, Turn("t2"), "two", "2")
    assert earlier_texts(own_file, Turn("t3")) == ["one", "1", "two", "2"]
    append_exchange(own_file, Turn("t3"), "three", "3")
    assert earlier_texts(other_file, Turn("t4")) == ["one", "1", "two", "2", "three", "3"]


def test_another_hosts_file_is_read_while_it_writes_and_after_it_was_killed(
    tmp_path: Path,
) -> None:
    live_file, path = tmp_path / "living", tmp_path / "b.checkpoints"
    with open_checkpoint_file(live_file) as file:
        ConversationHistory(file, Turn("t1").task).append([HumanMessage("q"), AIMessage("a")])
        # A killed process leaves its last writes in the log.
        for ending in ("", "-wal"):
            Path(f"{path}{ending}").write_bytes(Path(f"{live_file}{ending}").read_bytes())
    assert earlier_texts(tmp_path / "a.checkpoints", Turn("t2")) == ["q", "a"]


def test_a_damaged_neighbouring_file_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "b.checkpoints").write_bytes(b"no database " * 500)
    path = tmp_path / "a.checkpoints"
    append_exchange(path, Turn("t1"))
    assert earlier_texts(path, Turn("t2")) == ["q", "a"]


def test_a_repeated_attempt_replaces_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append_exchange(path, Turn("t1"), "q", "first")
    append_exchange(path, Turn("t2"), "r", "other")
    append_exchange(path, Turn("t1"), "q", "second")
    assert earlier_texts(path, Turn("t3")) == ["r", "other", "q", "second"]


def test_a_task_that_waited_for_input_continues_after_newer_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append_exchange(path, Turn("t1"), "convert", "Which currency?")
    append_exchange(path, Turn("t2"), "beside", "done")
    assert earlier_texts(path, Turn("t1", turn=2)) == [
        "beside",
        "done",
        "convert",
        "Which currency?",
    ]


def test_a_conversation_is_bounded_and_begins_with_a_question(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    for number in range(MAX_MESSAGES):
        call = tool_call(name="t", args={}, id=f"c{number}")
        append(
            path,
            Turn(f"t{number}"),
            HumanMessage(f"q{number}"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("r", tool_call_id=f"c{number}"),
            AIMessage(f"a{number}"),
        )
    messages = earlier_messages(path, Turn("x"))
    assert len(messages) == MAX_MESSAGES
    assert isinstance(messages[0], HumanMessage)
    assert messages[-1].text == f"a{MAX_MESSAGES - 1}"

    for number in range(8):
        append_exchange(path, Turn(f"long{number}"), "x" * 100_000, "y" * 100_000)
    assert 0 < sum(len(message.text) for message in earlier_messages(path, Turn("x"))) <= MAX_CHARS
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)


def test_a_rejected_answer_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append(
        path,
        Turn("t1"),
        HumanMessage("q"),
        AIMessage("nothing"),
        build_feedback("That was no answer."),
        AIMessage("a"),
    )
    assert earlier_texts(path, Turn("t2")) == ["q", "a"]


def test_a_conversation_is_a_thread_that_langgraph_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    append_exchange(path, Turn("t1"), "2+2", "4")
    with closing(sqlite3.connect(path)) as connection:
        config: RunnableConfig = {
            "configurable": {"thread_id": "math/c", "checkpoint_ns": "anonymous"}
        }
        checkpoint = SqliteSaver(connection).get_tuple(config)
    assert checkpoint is not None
    assert [message.text for message in checkpoint.checkpoint["channel_values"]["messages"]] == [
        "2+2",
        "4",
    ]
