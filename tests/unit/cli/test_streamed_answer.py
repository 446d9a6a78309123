"""A streamed answer is shown at once, completely, once, in order, and without status texts."""

from collections.abc import Iterable
from typing import Any

import pytest

from trunkline.cli.ask import show_end
from trunkline.cli.streamed_answer import StreamedAnswer


class Screen:
    """Records written text and notes, in order."""

    def __init__(self) -> None:
        self.out = ""
        self.writes: list[str] = []
        self.notes: list[str] = []

    def write(self, text: str) -> None:
        self.out += text
        self.writes.append(text)


def show(
    results: Iterable[dict[str, Any]], *, continues: bool = False
) -> tuple[Screen, StreamedAnswer]:
    screen = Screen()
    answer = StreamedAnswer(
        write=screen.write, print_progress=screen.notes.append, continues=continues
    )
    for result in results:
        answer.apply(result)
    answer.finish()
    return screen, answer


def piece(
    key: str, *parts: str | dict[str, Any], name: str = "", append: bool = True, last: bool = False
) -> dict[str, Any]:
    artifact = {
        "artifactId": key,
        "name": name,
        "parts": [{"text": part} if isinstance(part, str) else part for part in parts],
    }
    update: dict[str, Any] = {"taskId": "t", "artifact": artifact}
    if append:
        update["append"] = True
    if last:
        update["lastChunk"] = True
    return {"artifactUpdate": update}


def first(
    key: str, *parts: str | dict[str, Any], name: str = "", last: bool = False
) -> dict[str, Any]:
    return piece(key, *parts, name=name, append=False, last=last)


def status(state: str, text: str = "") -> dict[str, Any]:
    status_fields: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if text:
        status_fields["message"] = {"parts": [{"text": text}]}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": status_fields}}


def task(*artifacts: dict[str, Any], state: str = "SUBMITTED") -> dict[str, Any]:
    fields = {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return {"task": {**fields, "artifacts": list(artifacts)}}


COMPLETED = status("COMPLETED")


def test_text_is_written_on_arrival_and_the_line_is_ended() -> None:
    screen, answer = show([task(), first("a", "one "), piece("a", "two"), COMPLETED])
    assert screen.writes == ["one ", "two", "\n"]
    assert answer.text == "one two"
    assert (answer.task_id, answer.context_id) == ("t", "c")
    assert answer.is_completed


def test_a_second_answer_waits_until_the_first_is_complete() -> None:
    screen, answer = show(
        [
            first("a", "A1", name="streaming_result"),
            first("b", "B1", name="streaming_result"),
            piece("b", "B2", last=True),
            piece("a", "A2", last=True),
            first("c", "C1", name="streaming_result"),
            COMPLETED,
        ]
    )
    assert screen.out == "A1A2\nB1B2\nC1\n"
    assert screen.writes[:3] == ["A1", "A2", "\n"]
    assert answer.text == "A1A2\nB1B2\nC1"


def test_the_answers_of_a_plan_are_shown_in_the_order_of_its_steps() -> None:
    def step_piece(number: int, text: str, **more: Any) -> dict[str, Any]:
        result = piece(f"a-{number}", text, name="streaming_result", **more)
        result["artifactUpdate"]["artifact"]["metadata"] = {"trunkline/step": f"step-{number}"}
        return result

    screen, answer = show(
        [
            step_piece(2, "two", append=False, last=True),
            step_piece(1, "on", append=False),
            step_piece(1, "e", last=True),
            step_piece(4, "four", append=False, last=True),
            piece("whole", "one\ntwo\nfour", name="partial_result", append=False, last=True),
        ]
    )
    assert screen.writes == ["on", "e", "\n", "two", "\nfour", "\n"]
    assert answer.text == "one\ntwo\nfour"


def test_an_unclosed_answer_delays_the_others_only_until_the_end() -> None:
    screen, _ = show([first("a", "A"), first("b", "B", last=True), COMPLETED])
    assert screen.out == "A\nB\n"


@pytest.mark.parametrize(
    ("whole", "shown"),
    [
        ("36 and 33", "36 and 33\n"),
        ("36 and 33\n", "36 and 33\n"),
        ("36 and 33, so 69", "36 and 33, so 69\n"),
        ("It is 69", "36 and 33\nIt is 69\n"),
    ],
)
def test_the_whole_answer_adds_only_new_text(whole: str, shown: str) -> None:
    results = [
        first("s", "36 ", name="streaming_result"),
        piece("s", "and 33", last=True),
        first("p", whole, name="partial_result", last=True),
        COMPLETED,
    ]
    screen, answer = show(results)
    assert screen.out == shown
    assert answer.text == whole


def test_an_answer_that_streamed_after_its_parts_is_not_written_twice() -> None:
    answer_text = "It is 69"
    results = [
        first("s", "36 and 33", name="streaming_result", last=True),
        first("draft", answer_text[:4], name="streaming_result"),
        piece("draft", answer_text[4:], last=True),
        first("p", answer_text, name="partial_result", last=True),
        COMPLETED,
    ]
    screen, answer = show(results)
    assert screen.out == "36 and 33\nIt is 69\n"
    assert answer.text == answer_text


@pytest.mark.parametrize("order", [("4", "done"), ("done", "4")])
def test_a_missing_part_is_named_and_no_line_is_printed_twice(order: tuple[str, str]) -> None:
    """The first answers may arrive in another order than that of the plan."""
    streams = [
        first(f"s-{number}", text, name="streaming_result", last=True)
        for number, text in enumerate(order)
    ]
    whole = "4\nCould not answer it.\ndone"
    screen, answer = show(
        [*streams, first("p", whole, name="partial_result", last=True), COMPLETED]
    )
    assert sorted(screen.out.splitlines()) == sorted(whole.splitlines())
    assert answer.text == whole


@pytest.mark.parametrize("ends", [True, False])
def test_the_text_of_a_failed_part_repeats_no_other_text(ends: bool) -> None:
    # The failed part's text is in no answer, and can't be withdrawn.
    screen, answer = show(
        [
            first("a", "one\n ", name="streaming_result", last=True),
            first("b", "half of t", name="streaming_result", last=ends),
            first("c", "three\n[x]\n\n4", name="streaming_result", last=True),
            first("p", 'one\n \nCould not answer "two".\n', name="partial_result"),
            piece("p", "three\n[x]\n\n4", name="partial_result", last=True),
            COMPLETED,
        ]
    )
    rest = "three\n[x]\n\n4\n"
    if ends:
        assert screen.out == f'one\n \nhalf of t\n{rest}Could not answer "two".\n'
    else:
        assert screen.out == f'one\n \nhalf of t\nCould not answer "two".\n{rest}'
    assert answer.text == 'one\n \nCould not answer "two".\nthree\n[x]\n\n4'


def test_a_whole_answer_in_pieces_is_whole() -> None:
    pieces = [first("p", "one ", name="partial_result"), piece("p", "two", name="partial_result")]
    screen, answer = show([*pieces, COMPLETED])
    assert (screen.out, answer.text) == ("one two\n", "one two")


def test_the_outcome_and_the_agents_come_from_the_metadata() -> None:
    whole = first("p", "4", name="partial_result", last=True)
    whole["artifactUpdate"]["artifact"]["metadata"] = {"trunkline/agents": ["math", "echo"]}
    ended = status("COMPLETED")
    ended["statusUpdate"]["metadata"] = {"trunkline/outcome": "partial"}
    _, answer = show([whole, ended])
    assert (answer.outcome, answer.agents) == ("partial", ["math", "echo"])


def test_progress_is_known_by_its_role() -> None:
    plan = first("x", "1. math", name="how it is done", last=True)
    plan["artifactUpdate"]["artifact"]["metadata"] = {"trunkline/role": "plan"}
    screen, answer = show([plan, first("a", "3", last=True), COMPLETED])
    assert (screen.out, screen.notes, answer.text) == ("3\n", ["1. math"], "3")


def test_status_texts_are_noted_and_never_part_of_the_answer() -> None:
    screen, answer = show(
        [
            status("WORKING", "thinking"),
            first("plan", "⟦ask math", name="execution_plan_streaming"),
            piece("plan", "⟧"),
            first("plan", "⟦1. math⟧", name="execution_plan_update", last=True),
            first("x.start", "Calling math", name="tool_notification_start", last=True),
            first("s", "3", name="streaming_result", last=True),
            first("current_result", "", name="current_result", last=True),
            COMPLETED,
        ]
    )
    assert screen.out == "3\n"
    assert screen.notes == ["thinking", "1. math", "Calling math"]
    assert answer.text == "3"


def test_a_note_does_not_interrupt_a_line() -> None:
    notification = first("y", "math: done", name="tool_notification_complete", last=True)
    assert show([first("s", "3"), notification, COMPLETED])[0].notes == []
    assert show([first("s", "3\n"), notification, COMPLETED])[0].notes == ["math: done"]


def test_text_that_is_repeated_after_a_rewind_is_shown_once() -> None:
    screen, answer = show(
        [
            first("a", "one two three"),
            first("a", "one "),
            piece("a", "two "),
            piece("a", "three four"),
            COMPLETED,
        ]
    )
    assert screen.out == "one two three four\n"
    assert answer.text == "one two three four"


def test_different_text_after_a_rewind_starts_on_a_new_line() -> None:
    screen, answer = show([first("a", "one two"), first("a", "one "), piece("a", "too"), COMPLETED])
    assert screen.out == "one two\none too\n"
    assert answer.text == "one too"


def test_text_that_stays_rewound_is_shown_again() -> None:
    screen, answer = show([first("a", "one two"), first("a", "one", last=True), COMPLETED])
    assert screen.out == "one two\none\n"
    assert answer.text == "one"


@pytest.mark.parametrize(
    "again",
    [
        [first("a", "one\nfailed\ntwo", last=True)],
        [first("a", "one\n"), piece("a", "failed\ntwo", last=True)],
        [first("a", "one"), piece("a", "\nfailed\ntwo", last=True)],
    ],
)
def test_a_text_that_starts_over_repeats_no_whole_line(again: list[dict[str, Any]]) -> None:
    """The plain view sends an answer anew when one of its steps failed after it had written."""
    screen, answer = show([first("a", "one\n"), piece("a", "half of "), *again, COMPLETED])
    assert screen.out == "one\nhalf of \nfailed\ntwo\n"
    assert answer.text == "one\nfailed\ntwo"


def test_another_text_under_the_same_id_starts_on_a_new_line() -> None:
    screen, answer = show([first("a", "one"), first("a", "two"), COMPLETED])
    assert screen.out == "one\ntwo\n"
    assert answer.text == "two"


def test_files_and_data_get_a_line_each() -> None:
    raw = {"raw": "aGVsbG8=", "filename": "h.txt"}
    url = {"url": "https://example.com/x", "mediaType": "image/png"}
    screen, _ = show(
        [first("a", "see", raw, url), piece("a", {"data": {"n": 1}}, "end"), COMPLETED]
    )
    assert screen.out.splitlines() == [
        "see",
        "[file h.txt, 5 bytes]",
        "[file image/png at https://example.com/x]",
        '{"n": 1}',
        "end",
    ]


def test_a_direct_reply_is_the_answer() -> None:
    screen, answer = show([{"message": {"contextId": "c", "parts": [{"text": "hi"}]}}])
    assert screen.out == "hi\n"
    assert (answer.text, answer.state, answer.context_id) == ("hi", "", "c")


def test_the_final_status_text_is_the_answer_if_there_is_no_other() -> None:
    screen, answer = show([task(), status("COMPLETED", "all is done")])
    assert screen.out == "all is done\n"
    assert (answer.text, answer.end_text) == ("all is done", "")
    screen, _ = show([task(), first("a", "x"), status("COMPLETED", "all is done")])
    assert screen.out == "x\n"


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED"])
def test_the_text_of_an_unsuccessful_task_does_not_replace_what_was_written(
    state: str,
) -> None:
    screen, answer = show([task(), first("a", "half"), status(state, "because")])
    assert screen.out == "half\n"
    assert (answer.text, answer.end_text) == ("half", "because")
    assert not answer.is_completed


def test_the_parts_of_a_status_are_lines() -> None:
    waiting = status("INPUT_REQUIRED", "Which size?")
    waiting["statusUpdate"]["status"]["message"]["parts"].append({"text": "It needs approval."})
    _, answer = show([task(), waiting])
    assert answer.end_text == "Which size?\nIt needs approval."


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED"])
def test_a_question_and_a_reason_are_no_answer(state: str) -> None:
    _, answer = show([task(), status(state, "because")])
    assert (answer.text, answer.end_text) == ("", "because")


def test_a_complete_task_is_shown() -> None:
    screen, _ = show([task({"artifactId": "a", "parts": [{"text": "3"}]}, state="COMPLETED")])
    assert screen.out == "3\n"


def test_earlier_artifacts_of_a_continued_task_are_not_shown_again() -> None:
    old = {"artifactId": "old", "parts": [{"text": "old"}]}
    whole = {"artifactId": "p", "name": "partial_result", "parts": [{"text": "old"}]}
    screen, answer = show(
        [task(old, whole, state="INPUT_REQUIRED"), first("new", "new"), COMPLETED], continues=True
    )
    assert screen.out == "new\n"
    assert answer.text == "new"


def test_new_text_of_an_earlier_artifact_is_shown() -> None:
    old = {"artifactId": "a", "parts": [{"text": "old "}]}
    screen, answer = show(
        [task(old, state="INPUT_REQUIRED"), piece("a", "new"), COMPLETED], continues=True
    )
    assert screen.out == "new\n"
    assert answer.text == "new"


def test_a_task_without_artifacts_prints_nothing() -> None:
    screen, answer = show([task(), COMPLETED])
    assert screen.out == ""
    assert answer.text == ""


@pytest.mark.parametrize("key", ["trunkline/approvals", "trunkline/input-requests"])
def test_the_data_of_a_question_is_not_shown_beside_its_text(key: str) -> None:
    mark = {key: True}
    parts = [
        {"text": "shop/order needs your approval.", "metadata": mark},
        {"data": {"approvals": []}, "metadata": mark},
    ]
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": parts}}
    _, answer = show([{"statusUpdate": {"taskId": "t", "status": status}}])
    assert answer.status_text == "shop/order needs your approval."


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "FAILED"])
def test_a_status_that_the_answer_ends_with_is_printed_once(
    state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = {"state": f"TASK_STATE_{state}", "message": {"parts": [{"text": "which city?"}]}}
    screen, answer = show(
        [
            piece("a", "Two cities.\nwhich city?"),
            {"statusUpdate": {"taskId": "t", "status": status}},
        ]
    )
    assert screen.out == "Two cities.\nwhich city?\n"
    show_end(answer)
    assert "which" not in "".join(capsys.readouterr())
