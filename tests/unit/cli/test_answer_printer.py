"""An answer is printed at once, completely, once, in order, and without status texts."""

from collections.abc import Iterable
from typing import Any

import pytest

from trunkline.a2a_client.answer_fold import AnswerFold
from trunkline.a2a_client.answers import ClientAnswer
from trunkline.a2a_wire.response_reader import parse_stream_response
from trunkline.cli.answer_printer import AnswerPrinter, find_files, render_answer, render_end
from trunkline.cli.ask import TurnReport, find_exit_code, show_end
from trunkline.cli.exits import ExitCode
from trunkline.v1 import task_pb2

Json = dict[str, Any]


class Screen:
    """Records written text and notes, in order."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.notes: list[str] = []

    @property
    def out(self) -> str:
        return "".join(self.writes)


async def show(
    results: Iterable[Json], *, before: task_pb2.Task | None = None
) -> tuple[Screen, ClientAnswer]:
    screen = Screen()
    printer = AnswerPrinter(write=screen.writes.append, show_progress=screen.notes.append)
    fold = AnswerFold(printer.emit, peer="far", content_bytes=10_000, before=before)
    for number, result in enumerate(results):
        await fold.apply(parse_stream_response(result), is_first=not number)
    answer = await fold.finish()
    printer.finish(answer)
    return screen, answer


def piece(
    key: str,
    *parts: str | Json,
    name: str = "",
    append: bool = True,
    last: bool = False,
    **metadata: Any,
) -> Json:
    artifact = {
        "artifactId": key,
        "name": name,
        "parts": [{"text": part} if isinstance(part, str) else part for part in parts],
        "metadata": {f"trunkline/{key}": value for key, value in metadata.items()},
    }
    update = {"taskId": "t", "contextId": "c", "artifact": artifact}
    return {"artifactUpdate": {**update, "append": append, "lastChunk": last}}


def first(key: str, *parts: str | Json, name: str = "", last: bool = False, **more: Any) -> Json:
    return piece(key, *parts, name=name, append=False, last=last, **more)


def status(state: str, *texts: str, **metadata: Any) -> Json:
    content: Json = {"state": f"TASK_STATE_{state}"}
    if texts:
        parts = [{"text": text} for text in texts]
        content["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": parts}
    fields = {f"trunkline/{key}": value for key, value in metadata.items()}
    update = {"taskId": "t", "contextId": "c", "status": content, "metadata": fields}
    return {"statusUpdate": update}


def task(*artifacts: Json, state: str = "SUBMITTED") -> Json:
    fields = {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return {"task": {**fields, "artifacts": list(artifacts)}}


COMPLETED = status("COMPLETED")
RAW = {"raw": "aGVsbG8=", "filename": "h.txt"}
URL = {"url": "https://example.com/x", "mediaType": "image/png"}
STREAM: Json = {"role": "stream"}
ANSWER: Json = {"role": "answer"}
# The events of a turn, what is printed, and the text of the answer, if that is another one.
ANSWERS: dict[str, tuple[list[Json], str, str]] = {
    "pieces are one line": ([first("a", "one "), piece("a", "two"), COMPLETED], "one two\n", ""),
    "a task has ended before it is read": (
        [task({"artifactId": "a", "parts": [{"text": "3"}]}, state="COMPLETED")], "3\n", "",
    ),
    "a task without artifacts": ([task(), COMPLETED], "", ""),
    "the status of a completed task is the answer": (
        [task(), status("COMPLETED", "all is done")], "all is done\n", "",
    ),
    "an artifact is the answer before the status": (
        [task(), first("a", "x"), status("COMPLETED", "all is done")], "x\n", "",
    ),
    "a second answer waits until the first is complete": (
        [
            first("a", "A1", **STREAM),
            first("b", "B1", **STREAM),
            piece("b", "B2", last=True),
            piece("a", "A2", last=True),
            first("c", "C1", **STREAM),
            COMPLETED,
        ],
        "A1A2\nB1B2\nC1\n", "",
    ),
    "an answer that is never complete delays others to the end": (
        [first("a", "A", **STREAM), first("b", "B", last=True, **STREAM), COMPLETED], "A\nB\n", "",
    ),
    "answers are in the order of the steps of a plan": (
        [
            first("2", "two", last=True, step="step-2", **STREAM),
            first("1", "on", step="step-1", **STREAM),
            piece("1", "e", last=True),
            first("4", "four", last=True, step="step-4", **STREAM),
            first("whole", "one\ntwo\nfour", last=True, **ANSWER),
            COMPLETED,
        ],
        "one\ntwo\nfour\n", "",
    ),
    "a whole answer adds new text": (
        [first("s", "36 and 33", last=True, **STREAM),
         first("p", "36 and 33, so 69", last=True, **ANSWER), COMPLETED],
        "36 and 33, so 69\n", "",
    ),
    "another whole answer is on a new line": (
        [first("s", "36 and 33", last=True, **STREAM),
         first("p", "It is 69", last=True, **ANSWER), COMPLETED],
        "36 and 33\nIt is 69\n", "It is 69",
    ),
    "a whole answer that streamed after its parts": (
        [first("s", "36 and 33", last=True, **STREAM), first("draft", "It is ", **STREAM),
         piece("draft", "69", last=True), first("p", "It is 69", last=True, **ANSWER), COMPLETED],
        "36 and 33\nIt is 69\n", "It is 69",
    ),
    "only a missing part is named": (
        [first("1", "4", last=True, **STREAM), first("2", "done", last=True, **STREAM),
         first("p", "4\nCould not answer it.\ndone", last=True, **ANSWER), COMPLETED],
        "4\ndone\nCould not answer it.\n", "4\nCould not answer it.\ndone",
    ),
    "answers of agents without roles are known by their names": (
        [first("s", "3", name="streaming_result"),
         first("p", "one ", name="partial_result"), piece("p", "two"), COMPLETED],
        "3\none two\n", "one two",
    ),
    "text that is repeated after a rewind": (
        [first("a", "one two three"), first("a", "one "), piece("a", "two "),
         piece("a", "three four"), COMPLETED],
        "one two three four\n", "",
    ),
    "different text after a rewind": (
        [first("a", "one two"), first("a", "one "), piece("a", "too"), COMPLETED],
        "one two\none too\n", "one too",
    ),
    "text that stays rewound": (
        [first("a", "one two"), first("a", "one", last=True), COMPLETED], "one two\none\n", "one",
    ),
    "text that starts over repeats no whole line": (
        [first("a", "one\n"), piece("a", "half of "),
         first("a", "one\n"), piece("a", "failed\ntwo", last=True), COMPLETED],
        "one\nhalf of \nfailed\ntwo\n", "one\nfailed\ntwo",
    ),
    "files and data have a line each": (
        [first("a", "see", RAW, URL), piece("a", {"data": {"n": 1}}), COMPLETED],
        "see\n[file h.txt, 5 bytes]\n[file image/png at https://example.com/x]\n{\"n\": 1}\n", "",
    ),
    "a direct reply": (
        [{"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}}],
        "hi\n", "",
    ),
    "the question of a paused task is not its answer": (
        [task(), first("a", "half"), status("INPUT_REQUIRED", "because")], "half\n", "",
    ),
    "the reason of a failure is not its answer": ([task(), status("FAILED", "because")], "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_are_printed(name: str) -> None:
    results, out, text = ANSWERS[name]
    screen, answer = await show(results)
    assert screen.out == out
    assert render_answer(answer).rstrip("\n") == (text or out.rstrip("\n"))


async def test_text_is_written_on_arrival() -> None:
    screen, answer = await show([task(), first("a", "one "), piece("a", "two"), COMPLETED])
    assert screen.writes == ["one ", "two", "\n"]
    assert (answer.task_id, answer.context_id) == ("t", "c")


async def test_progress_is_noted_and_is_no_part_of_the_answer() -> None:
    screen, answer = await show(
        [
            status("WORKING", "thinking"),
            first("plan", "⟦ask math", name="execution_plan_streaming"),
            piece("plan", "⟧"),
            first("plan", "⟦1. math⟧", name="execution_plan_update", last=True),
            first("x", "Calling math", last=True, role="notice"),
            first("s", "3", **STREAM),
            # In the middle of a line it would look like a part of the answer.
            first("y", "math: done", last=True, role="notice"),
            first("current_result", "", name="current_result", last=True),
            COMPLETED,
        ]
    )
    assert (screen.out, screen.notes) == ("3\n", ["thinking", "1. math", "Calling math"])
    assert render_answer(answer) == "3"


async def test_earlier_artifacts_of_a_task_are_not_printed_again() -> None:
    old = {"artifactId": "old", "parts": [{"text": "old"}]}
    earlier = task(old, state="INPUT_REQUIRED")
    before = parse_stream_response(earlier).task
    events = [earlier, status("WORKING"), first("new", "new"), COMPLETED]
    screen, answer = await show(events, before=before)
    assert (screen.out, render_answer(answer)) == ("new\n", "new")


async def test_a_report_has_the_outcome_the_agents_and_the_route() -> None:
    whole = first("p", "4", RAW, last=True, agents=["math", "echo"], **ANSWER)
    _, answer = await show([whole, status("COMPLETED", outcome="partial")])
    report = TurnReport.build(answer, None, {"confidence": 0.5, "reasons": ["r"]}).to_json()
    assert (report["outcome"], report["agent"]) == ("partial", "math, echo")
    assert (report["confidence"], report["reasons"]) == (0.5, ["r"])
    assert find_exit_code(answer) is ExitCode.PARTIAL
    assert [part.filename for part in find_files(answer)] == ["h.txt"]


# The end of a task: its status text, what `ask` prints of it, and its exit code.
ENDS = {
    "COMPLETED": ("because", "", ExitCode.OK),
    "FAILED": ("because", "failed: because\n", ExitCode.FAILED),
    "REJECTED": ("because", "rejected: because\n", ExitCode.FAILED),
    "CANCELED": ("", "canceled\n", ExitCode.CANCELED),
    "INPUT_REQUIRED": ("which city?", "which city?\n", ExitCode.INPUT_REQUIRED),
    "AUTH_REQUIRED": ("", "auth-required\n", ExitCode.INPUT_REQUIRED),
}


@pytest.mark.parametrize("state", ENDS)
async def test_the_end_of_a_turn_is_told_once(
    state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, shown, code = ENDS[state]
    texts = [text] if text else []
    _, answer = await show([task(), first("a", "half"), status(state, *texts)])
    assert find_exit_code(answer) is code
    show_end(answer)
    assert "".join(capsys.readouterr()) == shown
    assert render_end(answer) == text
    # A status that the answer ends with was printed already.
    if text:
        _, answer = await show([task(), first("a", f"Two.\n{text}"), status(state, text)])
        show_end(answer)
        assert text not in "".join(capsys.readouterr())


@pytest.mark.parametrize("key", ["approvals", "input-requests"])
async def test_the_data_of_a_question_is_not_shown_beside_its_texts(key: str) -> None:
    waiting = status("INPUT_REQUIRED", "Which size?", "It needs approval.")
    parts = waiting["statusUpdate"]["status"]["message"]["parts"]
    parts.append({"data": {"approvals": []}, "metadata": {f"trunkline/{key}": True}})
    _, answer = await show([task(), waiting])
    assert render_end(answer) == "Which size?\nIt needs approval."
