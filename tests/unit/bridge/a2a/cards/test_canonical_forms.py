"""Tests of the canonical forms of cards, which signatures cover."""

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.a2a_wire.card_json import parse_card
from trunkline.a2a_wire.card_signatures import (
    NoCanonicalFormError,
    pruned_form,
    sent_form,
    specified_form,
)
from trunkline.v1 import agent_card_pb2

VECTORS = Path(__file__).parents[4] / "vectors" / "cards" / "canonical.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_form_equals_its_vector(case: dict[str, Any]) -> None:
    card = parse_card(json.dumps(case["card"]))
    assert specified_form(card).decode() == case["specified"]
    assert pruned_form(card).decode() == case["pruned"]


def test_the_sent_form_contains_every_field() -> None:
    text = '{"url": "u", "name": "s", "signatures": [1], "n": 1.0}'
    assert sent_form(text) == b'{"n":1,"name":"s","url":"u"}'


@pytest.mark.parametrize("text", ["[]", "7", "x", "[" * 100_000, '{"a": NaN}', '{"a": "\\ud800"}'])
def test_invalid_json_has_no_sent_form(text: str) -> None:
    with pytest.raises(NoCanonicalFormError):
        sent_form(text)


def test_a_too_deeply_nested_card_has_no_form() -> None:
    card = agent_card_pb2.AgentCard(name="s")
    deep = card.capabilities.extensions.add(uri="e").params
    for _ in range(80):
        deep = deep.members.add(key="a").value.struct_value
    assert specified_form(card)
    for _ in range(30):
        deep = deep.members.add(key="a").value.struct_value
    with pytest.raises(NoCanonicalFormError):
        specified_form(card)
