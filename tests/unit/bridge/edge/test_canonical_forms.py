"""The canonical forms of a card that signatures cover."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import _canonicalize_agent_card

from trunkline.v1 import agent_card_pb2
from trunkline_bridge.edge.card_signatures import (
    NoCanonicalFormError,
    pruned_form,
    sent_form,
    specified_form,
)
from trunkline_bridge.versions.card_json import parse_card

VECTORS = Path(__file__).parents[3] / "vectors" / "cards" / "canonical.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_each_form_is_as_the_vector_has_it(case: dict[str, Any]) -> None:
    card = parse_card(json.dumps(case["card"]))
    assert specified_form(card).decode() == case["specified"]
    assert pruned_form(card).decode() == case["pruned"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_pruning_is_what_the_sdk_does(case: dict[str, Any]) -> None:
    sdk = _canonicalize_agent_card(parse_agent_card(json.loads(json.dumps(case["card"]))))
    assert pruned_form(parse_card(json.dumps(case["card"]))).decode() == sdk


def test_signatures_are_not_signed() -> None:
    card = agent_card_pb2.AgentCard(name="s")
    before = specified_form(card), pruned_form(card)
    card.signatures.add(protected="x", signature="y")
    assert (specified_form(card), pruned_form(card)) == before


def test_as_it_was_sent_is_with_all_that_was_sent() -> None:
    text = '{"url": "u", "name": "s", "signatures": [1], "n": 1.0}'
    assert sent_form(text) == b'{"n":1,"name":"s","url":"u"}'


@pytest.mark.parametrize("text", ["[]", "7", "x", "[" * 100_000, '{"a": NaN}', '{"a": "\\ud800"}'])
def test_what_has_no_form_as_sent_says_so(text: str) -> None:
    with pytest.raises(NoCanonicalFormError):
        sent_form(text)


def test_what_nests_too_deep_has_no_form() -> None:
    card = agent_card_pb2.AgentCard(name="s")
    deep = card.capabilities.extensions.add(uri="e").params
    for _ in range(80):
        deep = deep.fields["a"].struct_value
    assert specified_form(card)
    for _ in range(30):
        deep = deep.fields["a"].struct_value
    with pytest.raises(NoCanonicalFormError):
        specified_form(card)
