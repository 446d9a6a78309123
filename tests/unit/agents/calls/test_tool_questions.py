"""Questions of tools: their text, their data, and how an answer is read."""

import json
from typing import Any

import pytest

from trunkline.agents.calls.tool_questions import (
    PendingQuestion,
    QuestionAnswer,
    build_continuation,
    build_pending,
    build_question_message,
    keep_answer,
    read_answer,
    read_lines,
    render_question,
)
from trunkline.core.json_values import update_struct, value_json
from trunkline.v1 import message_pb2, part_pb2, tool_service_pb2

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "description": "How many people come."},
        "view": {"type": "string", "enum": ["garden", "street"]},
        "note": {"type": "string"},
    },
    "required": ["seats", "view"],
}
ONE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


def form(schema: dict[str, Any], **more: Any) -> PendingQuestion:
    params = {"mode": "form", "message": "A table?", "requestedSchema": schema, **more}
    requests = {"table": {"method": "elicitation/create", "params": params}}
    question = tool_service_pb2.ToolQuestion(requests=json.dumps(requests), task_handle="h")
    return build_pending("shop/book", question)


def say(text: str) -> message_pb2.Message:
    return message_pb2.Message(parts=[part_pb2.Part(text=text)])


def test_a_question_names_the_values_that_it_needs() -> None:
    assert render_question(form(SCHEMA)) == (
        "shop/book asks: A table?\n"
        "- seats (a whole number): How many people come.\n"
        "- view (one of garden, street)\n"
        "- note (a text in quotation marks), optional\n"
        'Answer with each name and its value, or as JSON, or "decline".'
    )
    visit = render_question(form({}, mode="url", url="https://a.example/pay"))
    assert 'Visit https://a.example/pay (on a.example), then answer "done" or "decline".' in visit


@pytest.mark.parametrize(
    ("lines", "content"),
    [
        (["4", "garden"], {"seats": 4, "view": "garden"}),
        (["nonsense", "4 seats and view: street"], {"seats": 4, "view": "street"}),
        (["view: moon", "4", "garden"], {"seats": 4, "view": "garden"}),
        (["4", "decline"], None),
    ],
)
def test_lines_answer_together(lines: list[str], content: dict[str, Any] | None) -> None:
    assert read_lines(form(SCHEMA), lines[:-1]).missing
    answer = read_lines(form(SCHEMA), lines)
    assert not answer.missing
    assert answer.responses["table"].get("content") == content


@pytest.mark.parametrize("modes", [(), ("text/plain",)])
def test_programs_get_the_question_as_data_if_they_take_it(modes: tuple[str, ...]) -> None:
    text, *data = build_question_message([form(SCHEMA)], modes).parts
    assert text.text.startswith("shop/book asks")
    assert [value_json(part.data)["inputRequests"]["table"]["method"] for part in data] == (
        [] if modes else ["elicitation/create"]
    )


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("4 seats and view: garden", {"seats": 4, "view": "garden"}),
        ("seats 4, garden", {"seats": 4, "view": "garden"}),
        ('{"seats": 4, "view": "street", "other": 1}', {"seats": 4, "view": "street"}),
        ('seats: 4, view: street, note: "near the door"',
         {"seats": 4, "view": "street", "note": "near the door"}),
    ],
)  # fmt: skip
def test_words_and_json_answer_a_question(text: str, content: dict[str, Any]) -> None:
    answer = read_answer(form(SCHEMA), say(text))
    assert answer.responses == {"table": {"action": "accept", "content": content}}
    assert not answer.missing


@pytest.mark.parametrize(
    ("text", "content"),
    [("Ann", "Ann"), ('"Ann Lee"', "Ann Lee"), ("name: Ann", "Ann"), ("J.R.", "J.R.")],
)
def test_the_only_value_needs_no_name(text: str, content: str) -> None:
    answer = read_answer(form(ONE), say(text))
    assert answer.responses["table"]["content"] == {"name": content}


def test_missing_values_are_named() -> None:
    assert read_answer(form(SCHEMA), say("4 seats")).missing == ["view (one of garden, street)"]
    assert len(read_answer(form(SCHEMA), say("what?")).missing) == 2
    assert read_answer(form(SCHEMA), say('{"seats": 4}')).missing == [
        "view (one of garden, street)"
    ]
    assert read_answer(form(ONE), say(" ")).missing == ["name (a text in quotation marks)"]


@pytest.mark.parametrize(
    ("text", "action"), [("decline", "decline"), ("Decline.", "decline"), ("cancel", "cancel")]
)
def test_a_question_can_be_declined(text: str, action: str) -> None:
    answer = read_answer(form(SCHEMA), say(text))
    assert (answer.responses, list(answer.missing)) == ({"table": {"action": action}}, [])


VISIT: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("text", "action"),
    [("done", "accept"), ("No.", "decline"), ("what is this?", ""), (" ", "")],
)
@pytest.mark.parametrize("schema", [VISIT, {"type": "object", "properties": {}}])
def test_a_visit_or_a_form_without_values_needs_clear_consent(
    schema: dict[str, Any], text: str, action: str
) -> None:
    is_visit = schema is VISIT
    asked = form({}, mode="url", url="https://a.example") if is_visit else form(schema)
    answer = read_answer(asked, say(text))
    content: dict[str, Any] = {"content": {}} if action == "accept" and not is_visit else {}
    assert answer.responses == ({"table": {"action": action, **content}} if action else {})
    assert list(answer.missing) == ([] if action else ['"done" or "decline"'])


OPTIONAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "share": {"type": "boolean", "default": True},
        "seats": {"type": "integer", "default": 2},
    },
}


@pytest.mark.parametrize("text", ["what is this?", " ", "wait"])
def test_a_text_without_values_accepts_no_defaults(text: str) -> None:
    answer = read_answer(form(OPTIONAL), say(text))
    assert (answer.is_complete, answer.responses) == (False, {})
    assert answer.missing


def several() -> PendingQuestion:
    """Return a question with four requests, of which no answer but the own one is needed."""
    (optional,) = form(OPTIONAL)["requests"].values()
    (empty,) = form({"type": "object"})["requests"].values()
    (visit,) = form({}, mode="url", url="https://a.example")["requests"].values()
    question = form(ONE)
    (needed,) = question["requests"].values()
    question["requests"] = {"name": needed, "extras": optional, "agree": empty, "pay": visit}
    return question


ANSWERS: dict[str, Any] = {
    "name": {"action": "accept", "content": {"name": "Ann"}},
    "extras": {"action": "accept", "content": {"share": False, "seats": 2}},
    "agree": {"action": "decline"},
    "pay": {"action": "accept"},
}


def respond(responses: dict[str, Any], text: str = "") -> message_pb2.Message:
    part = part_pb2.Part()
    update_struct(part.data.struct_value, {"inputResponses": responses})
    return message_pb2.Message(parts=[*say(text).parts, part] if text else [part])


@pytest.mark.parametrize("text", ["", "yes", "Ann"])
@pytest.mark.parametrize("keys", [["name"], ["pay"], ["extras", "agree"], []], ids=str)
def test_a_request_without_its_own_response_stays_open(keys: list[str], text: str) -> None:
    question = several()
    given = {key: ANSWERS[key] for key in keys}
    invalid = {key: {"action": "perhaps"} for key in ANSWERS if key not in keys}
    for message in (respond(given, text), respond(given | invalid), respond(given | {"x": 1})):
        answer = read_answer(question, message)
        assert (answer.responses, answer.is_complete, answer.missing) == (given, False, [])
    keep_answer(question, answer)
    # The journal stores it as JSON, and only the open requests are asked again.
    question = json.loads(json.dumps(question))
    _, data = build_question_message([question]).parts
    assert value_json(data.data)["inputRequests"].keys() == ANSWERS.keys() - set(keys)
    rest = read_answer(question, respond({k: v for k, v in ANSWERS.items() if k not in keys}))
    assert (rest.responses, rest.is_complete) == (ANSWERS, True)


def test_words_answer_one_request_at_a_time() -> None:
    question = several()
    for text, key in (("Ann", "name"), ("share: no", "extras"), ("no", "agree"), ("ok", "pay")):
        assert render_question(question).count("asks:") == 1
        answer = read_answer(question, say(text))
        assert key in answer.responses
        assert answer.is_complete == (key == "pay")
        keep_answer(question, answer)
    assert answer.responses == ANSWERS


CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "color": {
            "type": "string",
            "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#00f", "title": "Dark blue"}],
        },
        "toppings": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "items": {"anyOf": [{"const": "c", "title": "Cherry"}, {"const": "n", "title": "Nut"}]},
        },
        "stars": {"type": "integer", "minimum": 1, "maximum": 5, "default": 3},
    },
    "required": ["color", "toppings", "stars"],
}


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (
            "red, cherry and nut, 5 stars",
            {"color": "#f00", "toppings": ["c", "n"], "stars": 5},
        ),
        ("Dark blue, cherry", {"color": "#00f", "toppings": ["c"], "stars": 3}),
        ('{"color": "#f00", "toppings": ["n"]}', {"color": "#f00", "toppings": ["n"], "stars": 3}),
    ],
)
def test_choices_have_titles_and_forms_have_defaults(text: str, content: dict[str, Any]) -> None:
    answer = read_answer(form(CHOICES), say(text))
    assert (answer.responses["table"]["content"], list(answer.missing)) == (content, [])
    assert "- toppings (one or more of Cherry, Nut)" in render_question(form(CHOICES))


@pytest.mark.parametrize(
    "content",
    [
        {"color": "Red", "toppings": ["c"], "stars": 5},
        {"color": "#f00", "toppings": [], "stars": 5},
        {"color": "#f00", "toppings": ["x"], "stars": 5},
        {"color": "#f00", "toppings": "c", "stars": 5},
        {"color": "#f00", "toppings": ["c"], "stars": 6},
        {"color": "#f00", "toppings": ["c"], "stars": "5"},
        {"color": "#f00", "toppings": ["c"], "stars": True},
    ],
    ids=str,
)
def test_values_that_the_form_forbids_are_asked_for_again(content: dict[str, Any]) -> None:
    response: dict[str, Any] = {"table": {"action": "accept", "content": content}}
    by_program = read_answer(form(CHOICES), respond(response))
    by_person = read_answer(form(CHOICES), say(json.dumps(content)))
    assert len(by_program.missing) == len(by_person.missing) == 1


TRIP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "leave": {"type": "string", "enum": ["Rome", "Oslo", "Bern"]},
        "arrive": {"type": "string", "enum": ["Rome", "Oslo", "Bern"]},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9},
        "class": {"type": "string", "enum": ["first", "second"], "default": "second"},
        "window": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 20},
    },
    "required": ["leave", "arrive", "seats"],
}


def answer_in_rounds(*texts: str) -> tuple[QuestionAnswer, PendingQuestion]:
    """Answer a question as a task does, whose journal stores the question in between as JSON."""
    pending = form(TRIP)
    answer = QuestionAnswer({}, is_complete=False)
    for text in texts:
        answer = read_answer(pending, say(text))
        keep_answer(pending, answer)
        pending = json.loads(json.dumps(pending))
    return answer, pending


@pytest.mark.parametrize(
    ("texts", "content"),
    [
        (["leave: Rome", "Oslo", "2"], {"leave": "Rome", "arrive": "Oslo", "seats": 2}),
        (["2 seats", "leave Oslo, arrive Rome"], {"leave": "Oslo", "arrive": "Rome", "seats": 2}),
        (["Oslo, Rome, seats: 99", "3"], {"leave": "Oslo", "arrive": "Rome", "seats": 3}),
        (["Oslo", "2 seats, leave: Bern", "Rome"], {"leave": "Bern", "arrive": "Rome", "seats": 2}),
        (['{"leave": "Oslo", "seats": 4}', "Rome"],
         {"leave": "Oslo", "arrive": "Rome", "seats": 4}),
        (["leave: Rome", '{"arrive": "Oslo", "seats": 1}'],
         {"leave": "Rome", "arrive": "Oslo", "seats": 1}),
        (["leave: Rome", "what?", "arrive: Oslo, seats 5"],
         {"leave": "Rome", "arrive": "Oslo", "seats": 5}),
        (["Oslo, Rome, window: yes, class: first", "seats 2"],
         {"leave": "Oslo", "arrive": "Rome", "seats": 2, "window": True, "class": "first"}),
        (["Oslo, Rome, 2 seats, class: royal", "first"],
         {"leave": "Oslo", "arrive": "Rome", "seats": 2, "class": "first"}),
        (["Oslo, Rome, 2 seats, window: perhaps", "done"],
         {"leave": "Oslo", "arrive": "Rome", "seats": 2}),
    ],
)  # fmt: skip
def test_accepted_values_stay_until_the_answer_is_complete(
    texts: list[str], content: dict[str, Any]
) -> None:
    answer, _ = answer_in_rounds(*texts)
    assert list(answer.missing) == []
    assert answer.responses["table"]["content"] == {"class": "second", **content}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("class: royal", ["class (one of first, second), optional"]),
        ("window: perhaps", ["window (yes or no), optional"]),
        ("note: much longer than it may be", ["note (a text in quotation marks), optional"]),
        ("seats: 12", ["seats (a whole number from 1 to 9)"]),
        ('{"seats": 12}', ["seats (a whole number from 1 to 9)"]),
    ],
)
def test_only_what_is_missing_or_wrong_is_asked_again(text: str, missing: list[str]) -> None:
    done = "leave: Oslo, arrive: Rome, seats: 4"
    if text.startswith("{"):
        answer, pending = answer_in_rounds(done + ", class: royal", text)
    else:
        answer, pending = answer_in_rounds(f"{done}, {text}".replace("seats: 4, seats", "seats"))
    assert list(answer.missing) == missing
    asked = render_question(pending)
    assert asked.startswith(f"Missing or not allowed: {missing[0]}.\n")
    assert "It has leave: Oslo, arrive: Rome" in asked
    assert "- leave" not in asked
    assert f"- {missing[0]}" in asked


def test_a_declined_question_forgets_its_values() -> None:
    answer, _ = answer_in_rounds("leave: Rome", "decline")
    assert answer.responses == {"table": {"action": "decline"}}


def test_accepted_values_beyond_the_limit_are_asked_again() -> None:
    pending = form({"type": "object", "properties": {
        "essay": {"type": "string"}, "name": {"type": "string"}, "seats": {"type": "integer"},
    }, "required": ["essay", "name", "seats"]})  # fmt: skip
    answer = read_answer(pending, say(json.dumps({"essay": "x" * 9_000, "name": "Ann"})))
    keep_answer(pending, answer)
    assert pending["accepted"] == {"table": {"name": "Ann"}}


@pytest.mark.parametrize(
    ("schema", "given", "content"),
    [
        (SCHEMA, {"seats": 2, "view": "street"}, {"seats": 2, "view": "street"}),
        (
            CHOICES,
            {"color": "#f00", "toppings": ["n"]},
            {"color": "#f00", "toppings": ["n"], "stars": 3},
        ),
    ],
    ids=["complete", "with a default"],
)
def test_programs_answer_as_mcp_does(
    schema: dict[str, Any], given: dict[str, Any], content: dict[str, Any]
) -> None:
    answer = read_answer(form(schema), respond({"table": {"action": "accept", "content": given}}))
    assert answer.responses == {"table": {"action": "accept", "content": content}}
    assert (list(answer.missing), answer.accepted) == ([], {"table": given})


@pytest.mark.parametrize("state", [None, b"", bytes(range(256))], ids=["none", "empty", "any"])
def test_the_state_goes_back_unchanged(state: bytes | None) -> None:
    question = tool_service_pb2.ToolQuestion(requests="{}", request_state=state, task_handle="h")
    # The journal stores it as JSON.
    pending = json.loads(json.dumps(build_pending("s/t", question)))
    continuation = build_continuation(pending, {"a": {"action": "cancel"}})
    assert continuation.HasField("request_state") == (state is not None)
    assert continuation.request_state == (state or b"")
    assert continuation.task_handle == "h"
