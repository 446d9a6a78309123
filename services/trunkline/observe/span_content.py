"""Content in spans: messages, answers, and arguments and results of tools; data is JSON.

It is recorded only with the setting `capture_content`. Names follow the GenAI semantic conventions
and, for dashboards that read only OpenInference, its conventions.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Final, NamedTuple, Self

from opentelemetry import context as otel_context
from opentelemetry.trace import Span

from trunkline.core.json_values import value_json
from trunkline.core.parts import join_texts
from trunkline.core.patterns import InvalidPatternError, Pattern, compile_pattern
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.observe import telemetry
from trunkline.v1 import part_pb2, task_pb2

_INPUT_MESSAGES: Final = "gen_ai.input.messages"
_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
_TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
_TOOL_RESULT: Final = "gen_ai.tool.call.result"
# OpenInference
_SPAN_KIND: Final = "openinference.span.kind"
_INPUT: Final = "input.value"
_OUTPUT: Final = "output.value"

_LIMIT_CHARS: Final = telemetry.ATTRIBUTE_LIMIT_CHARS
# Searching takes time, so text far beyond the limit is cut before.
_SEARCHED_CHARS: Final = 4 * _LIMIT_CHARS
# Room for the rest of a message in JSON.
_FRAME_CHARS: Final = 100
_REDACTED: Final = "[redacted]"
# Keys of well-known forms, tokens, private keys, and what stands after a word such as "password".
_SECRETS: Final = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"\b(?:sk|pk|rk|tk|ghp|gho|ghs|github_pat|glpat|xox[abprs]|AKIA|ASIA|AIza)[-_]?[\w-]{16,}",
    r"\bbearer +[\w.~+/=-]{8,}",
    r"\b(?:password|passwd|passphrase|secret|token|api[-_ ]?key)\b[\"']?"
    r"(?: +is +| *[:=] *)[\"']?[^\s\"',;]+",
)
_KEY: Final = otel_context.create_key("trunkline.span_content")


class SpokenText(NamedTuple):
    """A message in a span."""

    role: str
    """As the semantic conventions have it: system, user, assistant or tool."""
    text: str


class ContentCapture:
    """Puts content into spans, without matches of the patterns, and cut to 8,192 characters."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns

    @classmethod
    def create(cls, patterns: Sequence[str] = ()) -> Self:
        """Create a capture that redacts usual forms of secrets and what `patterns` match.

        Raises:
            ConfigurationError: a pattern is not in RE2's syntax.
        """
        compiled = [compile_pattern(pattern) for pattern in _SECRETS]
        for pattern in patterns:
            try:
                compiled.append(compile_pattern(pattern))
            except InvalidPatternError as error:
                problem = f"{pattern!r} is no pattern: {error}"
                raise ConfigurationError("capture_redact", problem) from error
        return cls(compiled)

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        """Create the capture of a mesh's settings, or return None if content is not captured.

        Raises:
            ConfigurationError: a pattern is not in RE2's syntax.
        """
        return cls.create(settings.capture_redact) if settings.capture_content else None

    def clean(self, text: str, limit_chars: int = _LIMIT_CHARS) -> str:
        """Return a text without secrets, cut to a limit."""
        text = text[:_SEARCHED_CHARS]
        for pattern in self._patterns:
            text = pattern.sub(_REDACTED, text)
        return text if len(text) <= limit_chars else f"{text[: limit_chars - 1]}…"

    def render_messages(self, messages: Sequence[SpokenText]) -> str:
        """Return messages as JSON of the semantic conventions; the earliest are left out first."""
        rendered: list[Mapping[str, object]] = []
        remaining = _LIMIT_CHARS
        for message in reversed(messages):
            remaining -= _FRAME_CHARS
            if remaining < _FRAME_CHARS:
                break
            # Escapes of JSON take room, too.
            text = self.clean(message.text, remaining)
            while len(json.dumps(text, ensure_ascii=False)) > remaining:
                text = f"{text[: len(text) * 3 // 4]}…"
            remaining -= len(json.dumps(text, ensure_ascii=False))
            rendered.insert(0, {"role": message.role, "parts": [{"type": "text", "content": text}]})
        return json.dumps(rendered, ensure_ascii=False)


def use_capture(capture: ContentCapture | None) -> AbstractContextManager[None]:
    """Capture content in the spans of this block and of work that it starts, unless None."""
    return telemetry.use_context(otel_context.set_value(_KEY, capture))


def current_capture() -> ContentCapture | None:
    """Return the capture of the current context, or None if content must not be recorded."""
    capture = otel_context.get_value(_KEY)
    return capture if isinstance(capture, ContentCapture) else None


def record_agent(span: Span, request: str, answer: str) -> None:
    """Record the request and the answer of an agent in its span, if content is captured."""
    _record_conversation(
        span, "AGENT", [SpokenText("user", request)], [SpokenText("assistant", answer)]
    )


def record_request(span: Span, request: str, answer: str) -> None:
    """Record a request and its answer in the span of a bridge, if content is captured."""
    _record_conversation(
        span, "CHAIN", [SpokenText("user", request)], [SpokenText("assistant", answer)]
    )


def find_answer(task: task_pb2.Task) -> str:
    """Return the text of a task's last artifact that has text, else of its status.

    Without any text it is the data of the last artifact that has data, as JSON.
    """
    latest_first = task.artifacts[::-1]
    texts = (join_texts(artifact.parts) for artifact in latest_first)
    status = (render_parts(task.status.message.parts),)
    data = (_render_data(artifact.parts) for artifact in latest_first)
    return next(filter(None, chain(texts, status, data)), "")


def render_parts(parts: Sequence[part_pb2.Part]) -> str:
    """Return the text of parts; without any, their data as JSON, each on a line."""
    return join_texts(parts) or _render_data(parts)


def _render_data(parts: Iterable[part_pb2.Part]) -> str:
    return "\n".join(
        json.dumps(value_json(part.data), ensure_ascii=False)
        for part in parts
        if part.HasField("data")
    )


def record_chat(span: Span, messages: Sequence[SpokenText], reply: str) -> None:
    """Record the messages and the reply of a model in its span, if content is captured."""
    _record_conversation(span, "LLM", messages, [SpokenText("assistant", reply)])


def record_tool(span: Span, arguments: Mapping[str, object], result: str) -> None:
    """Record the arguments and the result of a tool in its span, if content is captured."""
    capture = current_capture()
    if capture is None or not span.is_recording():
        return
    shown_arguments = capture.clean(json.dumps(arguments, ensure_ascii=False, default=str))
    shown_result = capture.clean(result)
    span.set_attributes(
        {
            _SPAN_KIND: "TOOL",
            _TOOL_ARGUMENTS: shown_arguments,
            _TOOL_RESULT: shown_result,
            _INPUT: shown_arguments,
            _OUTPUT: shown_result,
        }
    )


def _record_conversation(
    span: Span, kind: str, messages: Sequence[SpokenText], replies: Sequence[SpokenText]
) -> None:
    capture = current_capture()
    if capture is None or not span.is_recording():
        return
    span.set_attributes(
        {
            _SPAN_KIND: kind,
            _INPUT_MESSAGES: capture.render_messages(messages),
            _OUTPUT_MESSAGES: capture.render_messages(replies),
            _INPUT: capture.clean(messages[-1].text if messages else ""),
            _OUTPUT: capture.clean(replies[-1].text if replies else ""),
        }
    )
