"""An answer is shown as it comes: whole, once, in order, without mere news of the work."""

from collections.abc import Iterable
from typing import Any

import pytest

from trunkline.cli.streamed_answer import StreamedAnswer


class Screen:
    """What was written and noted, in order."""

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
    answer = StreamedAnswer(write=screen.write, note=screen.notes.append, continues=continues)
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
    said: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if text:
        said["message"] = {"parts": [{"text": text}]}
    return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": said}}


def task(*artifacts: dict[str, Any], state: str = "SUBMITTED") -> dict[str, Any]:
    fields = {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}}
    return {"task": {**fields, "artifacts": list(artifacts)}}


DONE = status("COMPLETED")


def test_text_is_written_as_it_comes_and_the_line_is_ended() -> None:
    screen, answer = show([task(), first("a", "one "), piece("a", "two"), DONE])
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
            DONE,
        ]
    )
    assert screen.out == "A1A2\nB1B2\nC1\n"
    assert screen.writes[:3] == ["A1", "A2", "\n"]
    assert answer.text == "A1A2\nB1B2\nC1"


def test_the_answers_of_a_plan_come_in_the_order_of_its_steps() -> None:
    def of_step(number: int, text: str, **more: Any) -> dict[str, Any]:
        result = piece(f"a-{number}", text, name="streaming_result", **more)
        result["artifactUpdate"]["artifact"]["metadata"] = {"trunkline/step": f"step-{number}"}
        return result

    screen, answer = show(
        [
            of_step(2, "two", append=False, last=True),
            of_step(1, "on", append=False),
            of_step(1, "e", last=True),
            of_step(4, "four", append=False, last=True),
            piece("whole", "one\ntwo\nfour", name="partial_result", append=False, last=True),
        ]
    )
    assert screen.writes == ["on", "e", "\n", "two", "\n", "four", "\n"]
    assert answer.text == "one\ntwo\nfour"


def test_an_answer_that_was_never_closed_holds_the_others_back_to_the_end_only() -> None:
    screen, _ = show([first("a", "A"), first("b", "B", last=True), DONE])
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
def test_the_whole_answer_adds_only_what_is_new(whole: str, shown: str) -> None:
    results = [
        first("s", "36 ", name="streaming_result"),
        piece("s", "and 33", last=True),
        first("p", whole, name="partial_result", last=True),
        DONE,
    ]
    screen, answer = show(results)
    assert screen.out == shown
    assert answer.text == whole


def test_an_answer_that_streamed_behind_those_it_is_made_of_is_not_written_twice() -> None:
    made = "It is 69"
    results = [
        first("s", "36 and 33", name="streaming_result", last=True),
        first("draft", made[:4], name="streaming_result"),
        piece("draft", made[4:], last=True),
        first("p", made, name="partial_result", last=True),
        DONE,
    ]
    screen, answer = show(results)
    assert screen.out == "36 and 33\nIt is 69\n"
    assert answer.text == made


def test_news_of_the_work_is_noted_and_never_part_of_the_answer() -> None:
    screen, answer = show(
        [
            status("WORKING", "thinking"),
            first("plan", "⟦ask math", name="execution_plan_streaming"),
            piece("plan", "⟧"),
            first("plan", "1. math", name="execution_plan_update", last=True),
            first("x.start", "Calling math", name="tool_notification_start", last=True),
            first("s", "3", name="streaming_result", last=True),
            first("current_result", "", name="current_result", last=True),
            DONE,
        ]
    )
    assert screen.out == "3\n"
    assert screen.notes == ["thinking", "1. math", "Calling math"]
    assert answer.text == "3"


def test_news_does_not_come_into_the_middle_of_a_line() -> None:
    news = first("y", "math: done", name="tool_notification_complete", last=True)
    assert show([first("s", "3"), news, DONE])[0].notes == []
    assert show([first("s", "3\n"), news, DONE])[0].notes == ["math: done"]


def test_text_that_was_cut_back_and_comes_again_is_shown_once() -> None:
    screen, answer = show(
        [
            first("a", "one two three"),
            first("a", "one "),
            piece("a", "two "),
            piece("a", "three four"),
            DONE,
        ]
    )
    assert screen.out == "one two three four\n"
    assert answer.text == "one two three four"


def test_text_that_comes_otherwise_after_it_was_cut_back_starts_on_a_new_line() -> None:
    screen, answer = show([first("a", "one two"), first("a", "one "), piece("a", "too"), DONE])
    assert screen.out == "one two\none too\n"
    assert answer.text == "one too"


def test_text_that_was_cut_back_for_good_is_shown_as_it_is() -> None:
    screen, answer = show([first("a", "one two"), first("a", "one", last=True), DONE])
    assert screen.out == "one two\none\n"
    assert answer.text == "one"


def test_another_text_under_the_same_id_starts_on_a_new_line() -> None:
    screen, answer = show([first("a", "one"), first("a", "two"), DONE])
    assert screen.out == "one\ntwo\n"
    assert answer.text == "two"


def test_files_and_data_get_a_line_each() -> None:
    raw = {"raw": "aGVsbG8=", "filename": "h.txt"}
    url = {"url": "https://example.com/x", "mediaType": "image/png"}
    screen, _ = show([first("a", "see", raw, url), piece("a", {"data": {"n": 1}}, "end"), DONE])
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


def test_what_the_end_says_is_the_answer_if_there_is_no_other() -> None:
    screen, _ = show([task(), status("COMPLETED", "all is done")])
    assert screen.out == "all is done\n"
    screen, _ = show([task(), first("a", "x"), status("COMPLETED", "all is done")])
    assert screen.out == "x\n"


@pytest.mark.parametrize("state", ["FAILED", "REJECTED", "CANCELED", "INPUT_REQUIRED"])
def test_what_a_task_says_that_did_not_complete_is_its_answer_but_not_its_output(
    state: str,
) -> None:
    screen, answer = show([task(), first("a", "half"), status(state, "because")])
    assert screen.out == "half\n"
    assert answer.text == answer.status_text == "because"
    assert not answer.is_completed


def test_a_whole_task_at_once_is_shown() -> None:
    screen, _ = show([task({"artifactId": "a", "parts": [{"text": "3"}]}, state="COMPLETED")])
    assert screen.out == "3\n"


def test_what_an_old_task_held_before_is_not_shown_again() -> None:
    old = {"artifactId": "old", "parts": [{"text": "old"}]}
    whole = {"artifactId": "p", "name": "partial_result", "parts": [{"text": "old"}]}
    screen, answer = show(
        [task(old, whole, state="INPUT_REQUIRED"), first("new", "new"), DONE], continues=True
    )
    assert screen.out == "new\n"
    assert answer.text == "new"


def test_what_an_old_artifact_gets_in_this_turn_is_shown() -> None:
    old = {"artifactId": "a", "parts": [{"text": "old "}]}
    screen, answer = show(
        [task(old, state="INPUT_REQUIRED"), piece("a", "new"), DONE], continues=True
    )
    assert screen.out == "new\n"
    assert answer.text == "new"


def test_a_task_that_made_nothing_prints_nothing() -> None:
    screen, answer = show([task(), DONE])
    assert screen.out == ""
    assert answer.text == ""


def test_what_asks_for_approval_is_shown_in_words_alone() -> None:
    mark = {"trunkline/approvals": True}
    parts = [
        {"text": "shop/order needs your approval.", "metadata": mark},
        {"data": {"approvals": []}, "metadata": mark},
    ]
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": parts}}
    _, answer = show([{"statusUpdate": {"taskId": "t", "status": status}}])
    assert answer.status_text == "shop/order needs your approval."
