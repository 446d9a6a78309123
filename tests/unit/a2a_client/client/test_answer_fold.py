"""A turn's events become an answer, and chunks whose text is the answer's."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.remote.scripted_agent import artifact, chunk, status, task
from trunkline import (
    ClientAnswer,
    ClientEvent,
    TaskState,
    TextChunk,
)
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.answer_fold import AnswerFold
from trunkline.core.json_values import parse_dict
from trunkline.errors import PeerProtocolError
from trunkline.v1 import task_pb2

PIECES = st.sampled_from(["", "a", "b", "ab", "\n", "a\n", "xyz"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["a-1", "a-2", "a-3"]), st.booleans(), PIECES), max_size=12
)


class Reader:
    """Records the events of a fold, and what a reader of its chunks sees."""

    def __init__(self, **options: Any) -> None:
        self.events: list[ClientEvent] = []
        self.shown = ""
        self.replaced = 0
        self.fold = AnswerFold(self._take, peer="far", content_bytes=1000, **options)

    async def read(self, *events: dict[str, Any], first: bool = False) -> ClientAnswer:
        """Apply events and finish."""
        for number, event in enumerate(events):
            response = parse_dict(event, a2a_pb2.StreamResponse())
            is_first = first and number == 0
            await self.fold.apply(response, cursor=str(number + 1), is_first=is_first)
        return await self.fold.finish()

    async def _take(self, event: ClientEvent) -> None:
        self.events.append(event)
        if isinstance(event, TextChunk):
            self.shown = event.text if event.replaces else self.shown + event.text
            self.replaced += event.replaces

    def of(self, kind: type) -> Sequence[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def in_role(role: str, text: str, *, artifact_id: str, **more: Any) -> dict[str, Any]:
    event = chunk(text, artifact_id=artifact_id, **more)
    event["artifactUpdate"]["artifact"]["metadata"] = {"trunkline/role": role}
    return event


DONE = status("COMPLETED")


@given(STEPS)
async def test_the_chunks_are_the_answers_text_whatever_comes(
    steps: list[tuple[str, bool, str]],
) -> None:
    reader = Reader()
    updates = [chunk(text, artifact_id=name, append=append) for name, append, text in steps]
    answer = await reader.read(task(), *updates, DONE)
    assert reader.shown == answer.text


@given(st.lists(PIECES, min_size=1, max_size=8), st.integers(0, 8), st.booleans())
async def test_text_that_is_repeated_after_a_rewind_is_shown_once(
    pieces: list[str], at: int, ends: bool
) -> None:
    reader = Reader()
    before, after = pieces[:at], pieces[at:]
    rewound = chunk("".join(before), append=False)
    answer = await reader.read(
        task(),
        *(chunk(piece, append=number > 0) for number, piece in enumerate(pieces)),
        rewound,
        *(chunk(piece, append=True) for piece in after),
        chunk("!" if ends else "", append=True, lastChunk=True),
        DONE,
    )
    assert reader.shown == answer.text == "".join(pieces) + ("!" if ends else "")
    assert reader.replaced == 0


async def test_another_text_after_a_rewind_replaces_what_was_shown() -> None:
    reader = Reader()
    answer = await reader.read(
        task(), chunk("one two"), chunk("one "), chunk("three", append=True), DONE
    )
    assert reader.shown == answer.text == "one three"
    assert reader.replaced == 1


async def test_an_answer_that_differs_from_its_stream_replaces_it() -> None:
    reader = Reader()
    answer = await reader.read(
        task(),
        in_role("stream", "four", artifact_id="s"),
        in_role("answer", "math: four", artifact_id="r"),
        in_role("stream", " more", artifact_id="s", append=True),
        DONE,
    )
    assert reader.shown == answer.text == "math: four"
    assert reader.replaced == 1


async def test_streams_at_the_same_time_are_shown_one_after_the_other() -> None:
    reader = Reader()
    answer = await reader.read(
        task(),
        in_role("stream", "one ", artifact_id="a"),
        in_role("stream", "three ", artifact_id="b"),
        in_role("stream", "two", artifact_id="a", append=True),
        in_role("stream", "four", artifact_id="b", append=True, lastChunk=True),
        in_role("stream", "five ", artifact_id="c"),
        in_role("stream", "", artifact_id="a", append=True, lastChunk=True),
        in_role("stream", "six", artifact_id="c", append=True, lastChunk=True),
        in_role("answer", "one two\nthree four\nfive six", artifact_id="r", lastChunk=True),
        DONE,
    )
    texts = [event.text for event in reader.of(TextChunk)]
    assert texts == ["one ", "two", "\nthree four\nfive ", "six"]
    assert reader.shown == answer.text
    # A cursor must not skip text that waits.
    assert [event.cursor for event in reader.of(TextChunk)] == ["2", "snapshot", "7", "8"]


async def test_streams_are_shown_in_the_order_of_the_steps() -> None:
    def of_step(number: int, text: str, **more: Any) -> dict[str, Any]:
        event = in_role("stream", text, artifact_id=f"s{number}", **more)
        event["artifactUpdate"]["artifact"]["metadata"]["trunkline/step"] = f"step-{number}"
        return event

    reader = Reader()
    await reader.read(
        task(),
        of_step(3, "three", lastChunk=True),
        of_step(2, "tw"),
        of_step(1, "one", lastChunk=True),
        of_step(2, "o", append=True, lastChunk=True),
        in_role("answer", "one\ntwo\nthree", artifact_id="r", lastChunk=True),
        DONE,
    )
    texts = [event.text for event in reader.of(TextChunk)]
    assert texts == ["one\ntw", "o\nthree"]


async def test_earlier_turns_are_no_part_of_the_answer() -> None:
    question = status("INPUT_REQUIRED", "which?")["statusUpdate"]["status"]
    earlier = {"status": question, "artifacts": [artifact("old"), artifact("log", "a-2")]}
    before = parse_dict({**task()["task"], **earlier}, task_pb2.Task(), ignore_unknown_fields=True)
    reader = Reader(before=before)
    answer = await reader.read(
        {"task": {**task()["task"], **earlier}},
        status("WORKING"),
        chunk(" more", artifact_id="a-2", append=True),
        status("INPUT_REQUIRED", "which else?"),
        first=True,
    )
    assert reader.shown == answer.text == "log more"
    assert answer.state is TaskState.INPUT_REQUIRED
    assert answer.status_text == "which else?"


async def test_a_resumed_turn_goes_on_without_its_beginning() -> None:
    reader = Reader(is_resumed=True)
    reader.fold.follow_task("t-1")
    await reader.read(status("WORKING"), chunk("two", append=True))
    assert (reader.shown, reader.replaced) == ("two", 0)
    await reader.read(chunk("one t"))
    assert (reader.shown, reader.replaced) == ("one t", 1)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (chunk("a", task_id="t-2"), "in the stream of another"),
        (chunk("a" * 1001), "more than"),
        ({"task": {"id": "t-1", "status": {}}}, "a state that A2A"),
        ({}, "an event that A2A"),
    ],
)
async def test_events_without_a_meaning_are_errors(event: dict[str, Any], problem: str) -> None:
    with pytest.raises(PeerProtocolError, match=problem):
        await Reader().read(task(), event)
