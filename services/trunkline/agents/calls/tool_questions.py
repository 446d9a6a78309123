"""Questions of tools to the user: their text, their data, and how an answer is read.

A tool asks by MCP's elicitation: a message with a flat schema of the values that it needs, or a URL
to visit, or several of these. The question ends the turn. Programs find it in a data part
`{"inputRequests": …}`, and may answer by `{"inputResponses": …}`, both as MCP has them. People
answer in words, one request at a time. A request without an answer of its own stays open. No I/O.
"""

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NotRequired, TypedDict
from urllib.parse import urlsplit

from trunkline.agents.calls.schema_arguments import (
    accepts_value,
    describe_argument,
    take_arguments,
    take_one,
)
from trunkline.core.json_values import build_value, update_struct, value_json
from trunkline.tasks.approvals import accepts_json
from trunkline.tasks.content import INPUT_RESPONSES, is_tool_answer
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2, part_pb2, snapshot_pb2, tool_service_pb2

QUESTION_KEY: Final = "trunkline/input-requests"
"""The metadata key that marks the parts of a question that come from a tool.

On the data part, its value has the ids of the requests.
"""
_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_REFUSALS: Final = {"decline": "decline", "no, thanks": "decline", "cancel": "cancel"}
_AGREEMENTS: Final = frozenset({"done", "ok", "okay", "yes", "accept"})
# The journal stores them with the question, in the state of its turn.
_ACCEPTED_LIMIT_CHARS: Final = 8 * 1024
_ANSWERED_LIMIT_CHARS: Final = 8 * 1024
_SHOWN_CHARS: Final = 60
_CONSENT: Final = '"done" or "decline"'


class PendingQuestion(TypedDict):
    """A question of a tool that waits for its answer, as the turn's state stores it."""

    tool: str
    requests: dict[str, Any]
    state: str | None
    """MCP's `requestState` as Latin-1, if the server sent it."""
    task_handle: str
    ids: NotRequired[dict[str, str]]
    """The id of each request. A request gets a new id when its answer is not complete."""
    missing: NotRequired[list[str]]
    """The values that the last answer lacks or has wrong. Absent if there was no answer."""
    accepted: NotRequired[dict[str, dict[str, Any]]]
    """The values that answers already had, by request and name."""
    answered: NotRequired[dict[str, Any]]
    """MCP's responses to the requests that are answered, while others are open."""


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The values that a message has for a question."""

    responses: dict[str, Any]
    """MCP's `inputResponses` to the requests that this and earlier answers answer."""
    is_complete: bool
    """Each request has its response."""
    missing: Sequence[str] = ()
    """The values that the answer lacks or has wrong, for people."""
    incomplete: Sequence[str] = ()
    """The requests whose answers lack values, or have wrong values."""
    accepted: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The allowed values of this and earlier answers, by open request, without defaults."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The response of an answer to one request."""

    response: dict[str, Any]
    """MCP's response, if nothing is missing."""
    missing: Sequence[str] = ()
    said: dict[str, Any] = field(default_factory=dict)
    """The values of this and earlier answers, without the defaults of the form."""


class ToolQuestions:
    """The questions of tools in one turn, each keyed by the call that asked."""

    def __init__(self, task: TurnRuntime, asked: Mapping[str, PendingQuestion]) -> None:
        """`asked` are the open questions; the turn's message may answer the first of them."""
        self.open = dict(asked)
        self._first = next(iter(asked), None)
        """The questions that wait for another turn."""
        self._message = task.opening_message
        decided = task.pending_approvals.answers(since=task.number)
        self._is_for_approvals = any(answer.turn == task.number for answer in decided)
        self._continuations: dict[str, tool_service_pb2.ToolContinuation] = {}

    def allow(self, key: str) -> bool:
        """Return whether a call can be made: it has no question, or the turn's message answers.

        Questions are answered one by one: a "yes" must not confirm what another tool asks.
        """
        question = self.open.get(key)
        if question is None:
            return True
        if key != self._first:
            return False
        answer = read_answer(question, self._message)
        if self._is_for_approvals:
            return False
        if not answer.is_complete:
            keep_answer(question, answer)
            return False
        del self.open[key]
        self._continuations[key] = build_continuation(question, answer.responses)
        return True

    def find_continuation(
        self, key: str, earlier: snapshot_pb2.ToolCallInfo | None
    ) -> tool_service_pb2.ToolContinuation | None:
        """Return the continuation of a call, if the call asked or became a task.

        `earlier` is the journal's record of the same call.
        """
        answered = self._continuations.get(key)
        handle = earlier.task_handle if earlier is not None else ""
        if handle and not (answered and answered.task_handle):
            return tool_service_pb2.ToolContinuation(task_handle=handle)
        return answered

    def add(self, key: str, tool: str, question: tool_service_pb2.ToolQuestion) -> None:
        """Add the question with which a call of `tool`, SERVER/TOOL, ended."""
        self.open[key] = build_pending(tool, question)


def build_pending(tool: str, question: tool_service_pb2.ToolQuestion) -> PendingQuestion:
    """Return a tool's question for the turn's state."""
    state = question.request_state.decode("latin-1") if question.HasField("request_state") else None
    requests: dict[str, Any] = json.loads(question.requests)
    return PendingQuestion(
        tool=tool,
        requests=requests,
        state=state,
        task_handle=question.task_handle,
        ids={key: _create_id() for key in requests},
    )


def _create_id() -> str:
    return secrets.token_hex(8)


def build_continuation(
    pending: PendingQuestion, responses: Mapping[str, Any]
) -> tool_service_pb2.ToolContinuation:
    """Return the continuation of the call that asked."""
    continuation = tool_service_pb2.ToolContinuation(
        responses=json.dumps(responses), task_handle=pending["task_handle"]
    )
    if pending["state"] is not None:
        continuation.request_state = pending["state"].encode("latin-1")
    return continuation


def build_question_message(
    questions: Iterable[PendingQuestion], accepted_modes: Sequence[str] = ()
) -> message_pb2.Message:
    """Return the message that asks the user the first of some questions.

    Its text has the first open request, its data part all of them. The data part is left out if
    `accepted_modes` excludes JSON.
    """
    question = next(iter(questions))
    text = part_pb2.Part(text=render_question(question))
    data = part_pb2.Part(media_type="application/json")
    data.data.CopyFrom(build_value({"inputRequests": _find_open(question)}))
    update_struct(text.metadata, {QUESTION_KEY: True})
    update_struct(data.metadata, {QUESTION_KEY: question.get("ids", {})})
    parts = [text, data] if accepts_json(accepted_modes) else [text]
    return message_pb2.Message(role=message_pb2.ROLE_AGENT, parts=parts)


def render_question(question: PendingQuestion) -> str:
    """Return the first open request of a question as text for people."""
    lines = [render_missing(question["missing"])] if question.get("missing") else []
    for key, request in list(_find_open(question).items())[:1]:
        params = request.get("params", {})
        lines.append(f"{question['tool']} asks: {params.get('message', '')}")
        if params.get("mode") == "url":
            url = str(params.get("url", ""))
            lines.append(f"Visit {url} (on {_find_host(url)}), then answer {_CONSENT}.")
            continue
        schema = params.get("requestedSchema", {})
        if not schema.get("properties"):
            lines.append(f"Answer {_CONSENT}.")
            continue
        accepted = question.get("accepted", {}).get(key, {})
        if accepted:
            values = (f"{name}: {_shorten(value)}" for name, value in accepted.items())
            lines.append(f"It has {', '.join(values)}.")
        lines += [
            f"- {describe_argument(name, schema)}"
            for name in schema.get("properties", {})
            if name not in accepted
        ]
        lines.append('Answer with each name and its value, or as JSON, or "decline".')
    return "\n".join(lines)


def render_missing(missing: Sequence[str]) -> str:
    """Return the sentence that says why an answer was not taken."""
    return f"Missing or not allowed: {', '.join(text.rstrip('.') for text in missing)}."


def read_answer(question: PendingQuestion, message: message_pb2.Message) -> QuestionAnswer:
    """Return what a message answers to a question.

    The responses of a program answer the requests that they name, and its text answers nothing.
    Without them, the text answers the first open request.
    """
    given = _find_responses(message)
    text = "\n".join(part.text for part in message.parts if part.HasField("text")).strip()
    responses = dict(question.get("answered", {}))
    accepted = dict(question.get("accepted", {}))
    missing: list[str] = []
    if given is None:
        readings = {
            key: _read_text(text, request, accepted.get(key, {}))
            for key, request in list(_find_open(question).items())[:1]
        }
    else:
        readings = {
            key: reading
            for key, request in question["requests"].items()
            if (reading := _read_response(given.get(key), request)) is not None
        }
    for key, reading in readings.items():
        missing += reading.missing
        schema = question["requests"][key].get("params", {}).get("requestedSchema", {})
        accepted[key] = _find_accepted(reading.said, schema)
        if not reading.missing:
            responses[key] = reading.response
    is_complete = question["requests"].keys() <= responses.keys()
    incomplete = [key for key, reading in readings.items() if reading.missing]
    return QuestionAnswer(responses, is_complete, missing, incomplete, accepted)


def keep_answer(question: PendingQuestion, answer: QuestionAnswer) -> None:
    """Add what an incomplete answer has to its question, which is asked again."""
    question["missing"] = list(answer.missing)
    question["ids"] = {
        **question.get("ids", {}),
        **{key: _create_id() for key in answer.incomplete},
    }
    answered = _limit_values({"": answer.responses}, _ANSWERED_LIMIT_CHARS).get("", {})
    question["answered"] = answered
    unanswered = {key: said for key, said in answer.accepted.items() if key not in answered}
    question["accepted"] = _limit_values(unanswered, _ACCEPTED_LIMIT_CHARS)


def read_lines(question: PendingQuestion, lines: Sequence[str]) -> QuestionAnswer:
    """Return what lines of text answer: the last one alone, or else all of them together."""
    answer = QuestionAnswer({}, is_complete=False)
    for text in (lines[-1], "\n".join(lines)):
        message = message_pb2.Message(parts=[part_pb2.Part(text=text)])
        answer = read_answer(question, message)
        if not answer.missing:
            break
    return answer


def _find_open(question: PendingQuestion) -> dict[str, Any]:
    """Return the requests that have no response yet."""
    answered = question.get("answered", {})
    return {key: request for key, request in question["requests"].items() if key not in answered}


def _find_responses(message: message_pb2.Message) -> Mapping[str, Any] | None:
    """Return the responses of a program, if the message has responses."""
    for part in message.parts:
        if is_tool_answer(part):
            responses = value_json(part.data)[INPUT_RESPONSES]
            return responses if isinstance(responses, Mapping) else {}
    return None


def _read_response(response: object, request: Mapping[str, Any]) -> _Reading | None:
    """Return the response of a program to one request, or None if it is no response."""
    if not isinstance(response, Mapping) or response.get("action") not in _ACTIONS:
        return None
    params = request.get("params", {})
    if response["action"] != "accept" or params.get("mode") == "url":
        return _Reading(dict(response))
    content, schema = response.get("content") or {}, params.get("requestedSchema", {})
    if not isinstance(content, Mapping):
        return _Reading(dict(response), _find_problems(content, schema))
    # SEP-1034: values that an accepted form leaves out have their defaults.
    filled = _find_defaults(schema) | dict(content)
    return _Reading({**response, "content": filled}, _find_problems(filled, schema), dict(content))


def _read_text(text: str, request: Mapping[str, Any], accepted: Mapping[str, Any]) -> _Reading:
    """Return what a text says to one request. Values that were accepted before count with it."""
    params = request.get("params", {})
    schema = params.get("requestedSchema", {})
    word = text.casefold().rstrip(".!")
    if action := _REFUSALS.get(word):
        return _Reading({"action": action})
    if params.get("mode") == "url" or not schema.get("properties"):
        # Only a clear yes is consent.
        if word == "no":
            return _Reading({"action": "decline"})
        response: dict[str, Any] = {"action": "accept"}
        if params.get("mode") != "url":
            response["content"] = {}
        return _Reading(response, () if word in _AGREEMENTS else (_CONSENT,))
    return _read_content(text, schema, accepted)


def _read_content(text: str, schema: Mapping[str, Any], accepted: Mapping[str, Any]) -> _Reading:
    """Return the values in a text, the values accepted before, and the values that both lack."""
    properties = schema.get("properties", {})
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if isinstance(values, dict):
        return _fill_form(
            {**accepted, **{name: value for name, value in values.items() if name in properties}},
            schema,
        )
    required = [name for name in schema.get("required", ()) if name not in accepted]
    taken = take_arguments(text, _put_open_first(schema, accepted))
    said = {
        name: value
        for name, value in {**accepted, **taken.arguments}.items()
        if name not in taken.rejected
    }
    open_names = [name for name in properties if name not in said]
    if taken.missing and len(required) == 1:
        open_names = required
    # The only value that is open needs no name.
    if not taken.arguments and not taken.rejected and len(open_names) == 1:
        value = take_one(text, open_names[0], schema)
        if value is not None:
            return _fill_form({**said, open_names[0]: value}, schema)
    if taken.arguments or taken.rejected or text.casefold().rstrip(".!") in _AGREEMENTS:
        return _fill_form(said, schema, taken.rejected)
    # A text without any value is no consent to the defaults.
    missing = taken.missing or [describe_argument(name, schema) for name in open_names]
    return _Reading({}, missing or (_CONSENT,), said)


def _fill_form(
    said: dict[str, Any], schema: Mapping[str, Any], rejected: Iterable[str] = ()
) -> _Reading:
    """Add the form's defaults to values, and find what they lack or have wrong.

    `rejected` are the names that the answer had with a value that the form forbids.
    """
    defaults = {
        name: value for name, value in _find_defaults(schema).items() if name not in rejected
    }
    content = defaults | said
    problems = [*_find_problems(content, schema), *(describe_argument(n, schema) for n in rejected)]
    response = {"action": "accept", "content": content}
    return _Reading(response, list(dict.fromkeys(problems)), said)


def _put_open_first(schema: Mapping[str, Any], accepted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema whose open values come before the values that an answer already had.

    A word that fits both is meant for the open value. The others are taken only by their names.
    """
    properties = schema.get("properties", {})
    names = sorted(properties, key=lambda name: name in accepted)
    required = [name for name in schema.get("required", ()) if name not in accepted]
    return {
        **schema,
        "properties": {name: properties[name] for name in names},
        "required": required,
    }


def _find_accepted(content: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a form that its schema allows."""
    properties = schema.get("properties", {})
    return {
        name: value
        for name, value in (content.items() if isinstance(content, Mapping) else ())
        if name in properties and accepts_value(name, value, schema)
    }


def _limit_values(
    groups: Mapping[str, Mapping[str, Any]], limit_chars: int
) -> dict[str, dict[str, Any]]:
    """Return the values that fit into the limit; the others are asked for again."""
    limited: dict[str, dict[str, Any]] = {}
    room = limit_chars
    for key, values in groups.items():
        for name, value in values.items():
            size = len(json.dumps([key, name, value]))
            if size <= room:
                limited.setdefault(key, {})[name] = value
                room -= size
    return limited


def _shorten(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _find_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a form begins with."""
    return {
        name: about["default"]
        for name, about in schema.get("properties", {}).items()
        if isinstance(about, Mapping) and about.get("default") is not None
    }


def _find_problems(content: object, schema: Mapping[str, Any]) -> Sequence[str]:
    """Return the values that are missing in the content of a form, or that its schema forbids."""
    values = content if isinstance(content, Mapping) else {}
    required = schema.get("required", ())
    return [
        describe_argument(name, schema)
        for name in schema.get("properties", {})
        if (name in required and name not in values)
        or (name in values and not accepts_value(name, values[name], schema))
    ]


def _find_host(url: str) -> str:
    try:
        return urlsplit(url).hostname or "an unknown host"
    except ValueError:
        return "an unknown host"
