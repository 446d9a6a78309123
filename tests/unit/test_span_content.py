"""Content in spans: redacted, and limited in size."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import ConfigurationError
from trunkline.span_content import ContentCapture, SpokenText
from trunkline.telemetry import ATTRIBUTE_LIMIT_CHARS

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


def test_a_wrong_pattern_is_an_error_of_the_setting() -> None:
    with pytest.raises(ConfigurationError, match="capture_redact"):
        ContentCapture.create(["(?=x)"])


texts = st.text(max_size=30) | st.text(alphabet='"\\\n\x00ä', min_size=5000, max_size=9000)


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
