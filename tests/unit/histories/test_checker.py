"""The checker of histories: it accepts what the promises allow, and finds each broken promise."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from harness.histories.checker import Bounds, Violation, check, find_in_doubt
from harness.histories.history import (
    Effect,
    HistoryFile,
    Kind,
    Record,
    Request,
    read_history,
    write_history,
)

BOUNDS = Bounds(end_s=10, stop_s=2)
TASK = "t1"
History: TypeAlias = list[Record]


class Writer:
    """Writes a history; each record is 0.1 s after the one before."""

    def __init__(self) -> None:
        self.records: History = []
        self._number = 0

    def add(self, kind: Kind, **fields: object) -> None:
        at = len(self.records) / 10
        self.records.append(Record(at, kind, number=self._number, **fields))  # type: ignore[arg-type]

    def invoke(self, name: Request, where: str = "bridge-1", **fields: object) -> None:
        self._number += 1
        self.add(Kind.INVOKED, name=name, where=where, **fields)

    def stream(self, message: str = "m1", task: str = TASK, *, context: str = "") -> None:
        """A message whose task is followed to its end, with the effects of the agent."""
        self.invoke(Request.STREAM, message=message, pieces=3, context=context)
        self.effect(Effect.BEGIN, task, message)
        self.add(Kind.EVENT, task=task, cursor="1.0", state="SUBMITTED", texts={})
        self.add(Kind.EVENT, task=task, cursor="2.0", state="WORKING")
        self.pieces(task, range(1, 4))
        self.effect(Effect.END, task, message)
        self.add(Kind.EVENT, task=task, cursor="6.0", state="COMPLETED")
        self.add(Kind.OK, task=task)

    def pieces(self, task: str, numbers: Sequence[int], *, run: str = "a") -> None:
        for number in numbers:
            self.add(
                Kind.EVENT, task=task, cursor=f"{number + 2}.0", artifact="x",
                text=f"{number}.{run} ", is_append=number > 1,
            )  # fmt: skip

    def effect(self, name: Effect, task: str = TASK, message: str = "m1") -> None:
        self.add(Kind.EFFECT, name=name, task=task, message=message)

    def get(self, state: str = "COMPLETED", text: str = "1.a 2.a 3.a ", task: str = TASK) -> None:
        self.invoke(Request.GET, task=task)
        self.add(Kind.OK, task=task, state=state, texts={"x": text})

    def cancel(self, kind: Kind = Kind.OK, task: str = TASK) -> None:
        self.invoke(Request.CANCEL, task=task)
        self.add(kind, task=task, state="CANCELED" if kind is Kind.OK else "")

    def list(self, *tasks: str) -> None:
        self.invoke(Request.LIST)
        self.add(Kind.OK, listed=list(tasks))

    def wait(self, seconds: float) -> None:
        """Let time pass: the agent of another task works."""
        for _ in range(int(seconds * 10)):
            self.effect(Effect.PIECE, "other", "other")

    def canceled(self) -> None:
        """A task that is canceled in its second piece."""
        self.invoke(Request.STREAM, message="m1", pieces=3)
        self.effect(Effect.BEGIN)
        self.add(Kind.EVENT, task=TASK, cursor="1.0", state="WORKING", texts={})
        self.pieces(TASK, [1])
        stream = self._number
        self.cancel()
        self.records.append(
            Record(
                len(self.records) / 10, Kind.EVENT, number=stream, task=TASK, cursor="4.0",
                state="CANCELED",
            )
        )  # fmt: skip
        self.records.append(Record(len(self.records) / 10, Kind.OK, number=stream, task=TASK))


def good() -> Writer:
    """A task with a reader that resumes, a fault, a second submission, and a list."""
    writer = Writer()
    writer.add(Kind.FAULT, name="cut", where="bridge-1 host-1")
    writer.add(Kind.HEALED)
    writer.stream()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="3.0")
    writer.pieces(TASK, [2, 3])
    writer.add(Kind.EVENT, task=TASK, cursor="6.0", state="COMPLETED")
    writer.add(Kind.OK, task=TASK)
    writer.invoke(Request.SEND, "bridge-3", message="m1", pieces=3)
    writer.add(Kind.OK, task=TASK, state="COMPLETED", texts={"x": "1.a 2.a 3.a "})
    writer.get()
    writer.list(TASK)
    return writer


def problems(history: Sequence[Record]) -> list[Violation]:
    return check(history, BOUNDS)


def edit(history: History, is_it: Callable[[Record], bool], **changes: object) -> History:
    """Change the last record that a condition selects."""
    index = max(number for number, record in enumerate(history) if is_it(record))
    changed = replace(history[index], **changes)  # type: ignore[arg-type]
    return [*history[:index], changed, *history[index + 1 :]]


def drop(history: History, is_it: Callable[[Record], bool]) -> History:
    """Leave the last record out that a condition selects."""
    index = max(number for number, record in enumerate(history) if is_it(record))
    return [*history[:index], *history[index + 1 :]]


def at_cursor(cursor: str) -> Callable[[Record], bool]:
    return lambda record: record.kind is Kind.EVENT and record.cursor == cursor


def test_a_good_history_has_no_violation() -> None:
    assert problems(good().records) == []


def test_a_takeover_that_rewinds_is_good() -> None:
    """The second run writes other pieces after an event that takes the first ones back."""
    writer = Writer()
    writer.invoke(Request.STREAM, message="m1", pieces=2)
    writer.add(Kind.EVENT, task=TASK, cursor="1.0", state="WORKING", texts={})
    writer.pieces(TASK, [1])
    writer.add(Kind.EVENT, task=TASK, cursor="4.0-2", artifact="x", text="")
    for cursor, text in (("5.0-2", "1.b "), ("6.0-2", "2.b ")):
        writer.add(Kind.EVENT, task=TASK, cursor=cursor, artifact="x", text=text, is_append=True)
    writer.add(Kind.EVENT, task=TASK, cursor="7.0-2", state="COMPLETED")
    writer.add(Kind.OK, task=TASK)
    assert problems(writer.records) == []


def test_a_canceled_task_is_good() -> None:
    writer = Writer()
    writer.canceled()
    assert problems(writer.records) == []


def test_a_cancel_that_came_too_late_is_good() -> None:
    writer = good()
    writer.cancel(Kind.REFUSED)
    assert problems(writer.records) == []


def test_a_request_that_failed_during_a_fault_is_good() -> None:
    writer = good()
    writer.invoke(Request.GET, task=TASK)
    writer.add(Kind.UNKNOWN)
    assert problems(writer.records) == []


def test_a_frozen_host_may_have_one_more_effect_when_it_thaws() -> None:
    writer = Writer()
    writer.canceled()
    writer.add(Kind.FAULT, name="freeze", where="host-1")
    writer.wait(6)
    writer.add(Kind.HEALED)
    writer.effect(Effect.PIECE)
    assert problems(writer.records) == []


def test_a_frozen_host_may_be_killed_by_the_next_owner_of_its_journal() -> None:
    writer = good()
    writer.add(Kind.EXIT, where="host-1", text="-9")
    assert problems(writer.records) == []


def test_turns_of_a_conversation_that_follow_each_other_are_good() -> None:
    writer = Writer()
    writer.stream("m1", "t1", context="c")
    writer.stream("m2", "t2", context="c")
    assert problems(writer.records) == []


def other_content() -> History:
    return edit(good().records, at_cursor("4.0"), text="2.b ")


def other_text_from_the_snapshot() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK)
    writer.add(Kind.EVENT, task=TASK, cursor="6.0", state="COMPLETED", texts={"x": "1.a 2.a "})
    writer.add(Kind.OK, task=TASK)
    return writer.records


def lost_event() -> History:
    return drop(good().records, at_cursor("4.0"))


def repeated_event() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="4.0")
    writer.pieces(TASK, [2, 3])
    writer.add(Kind.OK, task=TASK)
    return writer.records


def lost_event_in_the_middle() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="1.0")
    writer.add(Kind.EVENT, task=TASK, cursor="2.0", state="WORKING")
    writer.pieces(TASK, [1, 3])
    writer.add(Kind.OK, task=TASK)
    return writer.records


def two_epochs() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="5.0")
    writer.add(Kind.EVENT, task=TASK, cursor="6.0-2", state="COMPLETED")
    writer.add(Kind.OK, task=TASK)
    return writer.records


def event_after_the_end() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="6.0")
    writer.add(Kind.EVENT, task=TASK, cursor="7.0", state="FAILED")
    writer.add(Kind.OK, task=TASK)
    return writer.records


def earlier_epoch_after_a_later_one() -> History:
    history = edit(good().records, lambda record: record.cursor == "4.0", cursor="4.0-3")
    return edit(history, lambda record: record.cursor == "4.0", cursor="4.0-3")


def refused_cursor() -> History:
    writer = good()
    writer.invoke(Request.SUBSCRIBE, "bridge-2", task=TASK, cursor="4.0")
    writer.add(Kind.REFUSED, text="the event was lost")
    return writer.records


def task_not_found() -> History:
    writer = good()
    writer.invoke(Request.GET, "bridge-2", task=TASK)
    writer.add(Kind.REFUSED, text="no such task")
    return writer.records


def text_lost() -> History:
    writer = good()
    writer.get(text="1.a 3.a ")
    return writer.records


def text_doubled() -> History:
    writer = Writer()
    writer.stream()
    return edit(writer.records, at_cursor("5.0"), text="2.a 3.a ")


def text_of_two_runs() -> History:
    writer = Writer()
    writer.stream()
    return edit(writer.records, at_cursor("5.0"), text="3.b ")


def completed_without_its_last_piece() -> History:
    writer = Writer()
    writer.stream()
    return [record for record in writer.records if record.cursor != "5.0"]


def two_ends() -> History:
    writer = good()
    writer.get(state="FAILED")
    return writer.records


def never_ends() -> History:
    writer = Writer()
    writer.invoke(Request.SEND, message="m1", pieces=3)
    writer.add(Kind.OK, task=TASK, state="WORKING", texts={})
    writer.wait(12)
    writer.get(state="WORKING", text="1.a ")
    return writer.records


def ends_too_late() -> History:
    writer = Writer()
    writer.invoke(Request.SEND, message="m1", pieces=3)
    writer.add(Kind.OK, task=TASK, state="WORKING", texts={})
    writer.wait(12)
    writer.get()
    return writer.records


def no_answer() -> History:
    writer = good()
    writer.invoke(Request.GET, task=TASK)
    return writer.records


def fails_when_all_is_well() -> History:
    writer = good()
    writer.wait(11)
    writer.invoke(Request.GET, task=TASK)
    writer.add(Kind.UNKNOWN)
    return writer.records


def completes_after_the_cancel() -> History:
    writer = good()
    writer.cancel()
    return writer.records


def canceled_by_nobody() -> History:
    writer = Writer()
    writer.stream()
    return edit(writer.records, at_cursor("6.0"), state="CANCELED")


def effects_go_on_after_the_cancel() -> History:
    writer = Writer()
    writer.canceled()
    writer.wait(3)
    writer.effect(Effect.PIECE)
    return writer.records


def effects_go_on_after_the_thaw() -> History:
    writer = Writer()
    writer.canceled()
    writer.add(Kind.FAULT, name="freeze", where="host-1")
    writer.add(Kind.HEALED)
    writer.wait(3)
    writer.effect(Effect.PIECE)
    return writer.records


def cancel_of_a_running_task_is_refused() -> History:
    writer = Writer()
    writer.invoke(Request.SEND, message="m1", pieces=3)
    writer.add(Kind.OK, task=TASK, state="WORKING", texts={})
    writer.cancel(Kind.REFUSED)
    return writer.records


def two_tasks_of_a_message() -> History:
    writer = good()
    writer.stream("m1", "t2")
    return writer.records


def second_task_that_nobody_sees() -> History:
    writer = good()
    writer.effect(Effect.BEGIN, "t2", "m1")
    return writer.records


def task_of_two_messages() -> History:
    writer = good()
    writer.invoke(Request.SEND, message="m2", pieces=3)
    writer.add(Kind.OK, task=TASK, state="COMPLETED", texts={"x": "1.a 2.a 3.a "})
    return writer.records


def listed_task_of_nobody() -> History:
    writer = good()
    writer.list(TASK, "t9")
    return writer.records


def missing_in_the_list() -> History:
    writer = good()
    writer.list()
    return writer.records


def twice_in_the_list() -> History:
    writer = good()
    writer.list(TASK, TASK)
    return writer.records


def process_that_ends() -> History:
    writer = good()
    writer.add(Kind.EXIT, where="bridge-1", text="1")
    return writer.records


def turns_at_the_same_time() -> History:
    writer = Writer()
    writer.stream("m1", "t1", context="c")
    writer.stream("m2", "t2", context="c")
    end = next(
        index for index, record in enumerate(writer.records)
        if record.task == "t1" and record.name == Effect.END
    )  # fmt: skip
    late = replace(writer.records[end], at=writer.records[-1].at)
    return [*writer.records[:end], *writer.records[end + 1 :], late]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (other_content, "one truth"),
        (other_text_from_the_snapshot, "one truth"),
        (lost_event, "resume"),
        (repeated_event, "resume"),
        (lost_event_in_the_middle, "one truth"),
        (two_epochs, "one truth"),
        (event_after_the_end, "one truth"),
        (earlier_epoch_after_a_later_one, "one truth"),
        (refused_cursor, "resume"),
        (task_not_found, "one truth"),
        (text_lost, "no text lost, doubled or moved"),
        (text_doubled, "no text lost, doubled or moved"),
        (text_of_two_runs, "no text lost, doubled or moved"),
        (completed_without_its_last_piece, "no text lost, doubled or moved"),
        (two_ends, "one truth"),
        (never_ends, "nothing is stuck"),
        (ends_too_late, "nothing is stuck"),
        (no_answer, "nothing is stuck"),
        (fails_when_all_is_well, "nothing is stuck"),
        (completes_after_the_cancel, "cancel"),
        (canceled_by_nobody, "cancel"),
        (effects_go_on_after_the_cancel, "cancel"),
        (effects_go_on_after_the_thaw, "cancel"),
        (cancel_of_a_running_task_is_refused, "one truth"),
        (two_tasks_of_a_message, "submit once"),
        (second_task_that_nobody_sees, "submit once"),
        (task_of_two_messages, "submit once"),
        (listed_task_of_nobody, "submit once"),
        (missing_in_the_list, "one truth"),
        (twice_in_the_list, "one truth"),
        (process_that_ends, "processes survive"),
        (turns_at_the_same_time, "order in a conversation"),
    ],
)
def test_a_broken_promise_is_found(broken: Callable[[], History], promise: str) -> None:
    assert promise in {violation.promise for violation in problems(broken())}


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = good().records
    write_history(tmp_path / "whole", history)
    half = HistoryFile(tmp_path / "clients")
    for record in history:
        half.add(record)
    half.close()
    # A process was killed in a write.
    with (tmp_path / "clients").open("a") as file:
        file.write('{"at": 5')
    assert read_history(tmp_path / "whole") == read_history(tmp_path / "clients") == history


def test_a_message_that_is_in_doubt_may_arrive_in_a_later_round() -> None:
    """The network repeats what a client has sent, also after the client has given up."""
    earlier = Writer()
    earlier.stream()
    earlier.invoke(Request.SEND, message="lost", pieces=3)
    earlier.add(Kind.UNKNOWN, text="TimeoutError()")
    in_doubt = find_in_doubt(earlier.records, BOUNDS)
    assert in_doubt == {"lost"}
    history = Writer()
    history.stream("m2")
    history.effect(Effect.BEGIN, "t9", "lost")
    history.list(TASK, "t9")
    assert check(history.records, BOUNDS, in_doubt=in_doubt) == []
    assert [each.promise for each in check(history.records, BOUNDS)] == ["submit once"]
