"""Conversations: remembered by agent, context and account, wherever and however often kept."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.checkpoint.sqlite import SqliteSaver

from trunkline.reasoning.checkpoint_files import open_checkpoint_file
from trunkline.reasoning.conversation import CHARS_KEPT, MESSAGES_KEPT, ConversationHistory
from trunkline.reasoning.message_repair import CALL_INTERRUPTED, build_feedback

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from trunkline.tasks.turn_runtime import TurnRuntime


@dataclass
class Turn:
    """As much of a task as its conversation is named by."""

    id: str
    turn: int = 1
    agent: str = "math"
    context_id: str = "c"
    account: str = "anonymous"

    @property
    def task(self) -> "TurnRuntime":
        return cast("TurnRuntime", self)


def tell(path: Path, turn: Turn, *messages: BaseMessage) -> None:
    """Add what was said in a turn."""
    with open_checkpoint_file(path) as file:
        ConversationHistory(file, turn.task).append(messages)


def ask(path: Path, turn: Turn, question: str = "q", answer: str = "a") -> None:
    tell(path, turn, HumanMessage(question), AIMessage(answer))


def heard(path: Path, turn: Turn) -> list[str]:
    """What a turn is shown of its conversation."""
    return [str(message.text) for message in shown(path, turn)]


def shown(path: Path, turn: Turn) -> Sequence[BaseMessage]:
    with open_checkpoint_file(path) as file:
        return ConversationHistory(file, turn.task).earlier_messages()


def test_what_was_said_in_other_tasks_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"), "2+2", "4")
    ask(path, Turn("t2"), "3+3", "6")
    assert heard(path, Turn("t3")) == ["2+2", "4", "3+3", "6"]


def test_other_agents_contexts_and_accounts_hear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"))
    for other in (
        Turn("t2", agent="currency"),
        Turn("t2", context_id="d"),
        Turn("t2", account="somebody"),
    ):
        assert heard(path, other) == []


def test_the_newest_is_found_whichever_host_kept_it(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.checkpoints", tmp_path / "b.checkpoints"
    ask(ours, Turn("t1"), "one", "1")
    ask(theirs, Turn("t2"), "two", "2")
    assert heard(ours, Turn("t3")) == ["one", "1", "two", "2"]
    ask(ours, Turn("t3"), "three", "3")
    assert heard(theirs, Turn("t4")) == ["one", "1", "two", "2", "three", "3"]


def test_a_file_of_another_host_is_read_while_that_writes_and_after_it_was_killed(
    tmp_path: Path,
) -> None:
    living, path = tmp_path / "living", tmp_path / "b.checkpoints"
    with open_checkpoint_file(living) as file:
        ConversationHistory(file, Turn("t1").task).append([HumanMessage("q"), AIMessage("a")])
        # As a killed process leaves it: what it wrote last is in the log.
        for ending in ("", "-wal"):
            Path(f"{path}{ending}").write_bytes(Path(f"{living}{ending}").read_bytes())
    assert heard(tmp_path / "a.checkpoints", Turn("t2")) == ["q", "a"]


def test_a_file_beside_that_is_damaged_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "b.checkpoints").write_bytes(b"no database " * 500)
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"))
    assert heard(path, Turn("t2")) == ["q", "a"]


def test_an_attempt_that_is_repeated_replaces_what_it_said(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"), "q", "first")
    ask(path, Turn("t2"), "r", "other")
    ask(path, Turn("t1"), "q", "second")
    assert heard(path, Turn("t3")) == ["r", "other", "q", "second"]


def test_a_task_that_waited_goes_on_where_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"), "convert", "Which currency?")
    ask(path, Turn("t2"), "beside", "done")
    assert heard(path, Turn("t1", turn=2)) == ["beside", "done", "convert", "Which currency?"]


def test_it_is_bounded_and_never_begins_in_the_middle_of_an_exchange(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    for number in range(MESSAGES_KEPT):
        call = tool_call(name="t", args={}, id=f"c{number}")
        tell(
            path,
            Turn(f"t{number}"),
            HumanMessage(f"q{number}"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("r", tool_call_id=f"c{number}"),
            AIMessage(f"a{number}"),
        )
    kept = shown(path, Turn("x"))
    assert len(kept) == MESSAGES_KEPT
    assert isinstance(kept[0], HumanMessage)
    assert kept[-1].text == f"a{MESSAGES_KEPT - 1}"

    for number in range(8):
        ask(path, Turn(f"long{number}"), "x" * 100_000, "y" * 100_000)
    assert 0 < sum(len(one.text) for one in shown(path, Turn("x"))) <= CHARS_KEPT
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM checkpoints").fetchone() == (1,)


def test_a_call_that_was_cut_off_gets_an_answer_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    call = tool_call(name="t", args={"x": 1}, id="c")
    tell(path, Turn("t1"), HumanMessage("q"), AIMessage("", tool_calls=[call]), AIMessage("stop"))
    question, called, answered, end = shown(path, Turn("t2"))
    assert isinstance(called, AIMessage)
    assert isinstance(answered, ToolMessage)
    assert (answered.tool_call_id, answered.text) == (called.tool_calls[0]["id"], CALL_INTERRUPTED)
    assert (question.text, end.text) == ("q", "stop")


def test_an_answer_that_was_refused_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    tell(
        path,
        Turn("t1"),
        HumanMessage("q"),
        AIMessage("nothing"),
        build_feedback("That was no answer."),
        AIMessage("a"),
    )
    assert heard(path, Turn("t2")) == ["q", "a"]


def test_it_is_a_thread_that_langgraph_itself_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.checkpoints"
    ask(path, Turn("t1"), "2+2", "4")
    with closing(sqlite3.connect(path)) as connection:
        config: RunnableConfig = {
            "configurable": {"thread_id": "math/c", "checkpoint_ns": "anonymous"}
        }
        found = SqliteSaver(connection).get_tuple(config)
    assert found is not None
    assert [one.text for one in found.checkpoint["channel_values"]["messages"]] == ["2+2", "4"]
