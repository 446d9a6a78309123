"""Content in spans: redacted, and limited in size."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.json_values import parse_dict
from trunkline.errors import ConfigurationError
from trunkline.observe.span_content import ContentCapture, SpokenText, find_answer, render_parts
from trunkline.observe.telemetry import ATTRIBUTE_LIMIT_CHARS
from trunkline.v1 import part_pb2, task_pb2

CAPTURE = ContentCapture.create()
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("call me with sk-abcdefghijklmnopqrstuv please", "call me with [redacted] please"),
        ("Authorization: Bearer abcdef123456", "Authorization: [redacted]"),
        (f"my token: {JWT}", "my [redacted]"),
        (f"see {JWT}!", "see [redacted]!"),
        ('{"password": "hunter2", "user": "ada"}', '{"[redacted]", "user": "ada"}'),
        ("the api key is abc123, ok?", "the [redacted], ok?"),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY----- end",
            "[redacted] end",
        ),
        ("what is 2+2", "what is 2+2"),
        ("a secret garden, 5 tokens", "a secret garden, 5 tokens"),
    ],
)
def test_usual_forms_of_secrets_are_redacted(text: str, shown: str) -> None:
    assert CAPTURE.clean(text) == shown


def test_a_long_text_is_cut() -> None:
    shown = CAPTURE.clean("x" * 1_000_000)
    assert len(shown) == ATTRIBUTE_LIMIT_CHARS
    assert shown.endswith("x…")


def build_part(value: Any) -> part_pb2.Part:
    """Return a part with a text, data or bytes."""
    if isinstance(value, str):
        return part_pb2.Part(text=value)
    if isinstance(value, bytes):
        return part_pb2.Part(raw=value)
    part = part_pb2.Part()
    parse_dict(value, part.data)
    return part


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (["a", "b"], "ab"),
        ([{"ratio": 0.5, "score": 90}], '{"ratio": 0.5, "score": 90}'),
        ([{"a": [1, None, True, {"ä": "ö"}]}], '{"a": [1, null, true, {"ä": "ö"}]}'),
        ([[1, 2], {"b": 1e300}], '[1, 2]\n{"b": 1e+300}'),
        (["text", {"a": 1}], "text"),
        ([b"bytes"], ""),
        ([b"bytes", {"a": 1}], '{"a": 1}'),
        ([], ""),
    ],
)
def test_parts_are_shown_as_text_or_as_json(values: list[object], shown: str) -> None:
    assert render_parts([build_part(value) for value in values]) == shown


@pytest.mark.parametrize(
    ("artifacts", "status", "answer"),
    [
        ([{"a": 1}], "", '{"a": 1}'),
        ([{"a": 1}, {"b": 2}], "", '{"b": 2}'),
        (["text", {"b": 2}], "", "text"),
        ([{"a": 1}], "which one?", "which one?"),
        ([], {"form": 1}, '{"form": 1}'),
        ([b"bytes"], "", ""),
    ],
)
def test_the_answer_of_a_task_is_its_text_else_its_data(
    artifacts: list[object], status: object, answer: str
) -> None:
    task = task_pb2.Task()
    for value in artifacts:
        task.artifacts.add(parts=[build_part(value)])
    if status:
        task.status.message.parts.append(build_part(status))
    assert find_answer(task) == answer


def test_a_wrong_pattern_is_an_error_of_the_setting() -> None:
    with pytest.raises(ConfigurationError, match="capture_redact"):
        ContentCapture.create(["(?=x)"])


texts = st.text(max_size=30) | st.builds(
    str.__mul__, st.sampled_from('"\\\n\x00ä'), st.integers(5000, 9000)
)


@given(st.lists(st.builds(SpokenText, st.sampled_from(["user", "assistant"]), texts), max_size=6))
def test_messages_are_valid_json_within_the_limit_and_the_last_ones_remain(
    messages: list[SpokenText],
) -> None:
    rendered = CAPTURE.render_messages(messages)
    assert len(rendered) <= ATTRIBUTE_LIMIT_CHARS
    shown = json.loads(rendered)
    assert [message["role"] for message in shown] == [
        message.role for message in messages[len(messages) - len(shown) :]
    ]
    assert bool(shown) == bool(messages)
