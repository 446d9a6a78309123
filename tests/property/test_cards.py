"""Any card has the canonical forms that its signature covers, and every client reads the card."""

import copy
import json
import logging
from typing import Any

import jwt
import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import _canonicalize_agent_card, create_signature_verifier
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from harness.examples import share
from harness.remote.token_issuer import SigningKey, key_set
from trunkline.a2a_wire.card_json import merged_card_json, parse_card
from trunkline.a2a_wire.card_signatures import (
    SPECIFIED,
    CardSigner,
    InvalidSignatureError,
    parse_trusted_keys,
    pruned_form,
    specified_form,
    verify_card,
)
from trunkline.a2a_wire.json_values import dumps
from trunkline.core.json_values import parse_dict
from trunkline.v1 import agent_card_pb2, json_pb2

# The SDK logs a warning for each card that lacks a required field.
logging.getLogger("a2a.utils.proto_utils").setLevel(logging.ERROR)

KEY = SigningKey("main")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Any:
    """Generate any message of a type, with or without each of its fields."""
    message = kind()
    if isinstance(message, json_pb2.Struct):
        parse_dict(draw(st.dictionaries(texts, values, max_size=2)), message)
        return message
    chosen_fields = {
        oneof.name: draw(st.sampled_from([field.name for field in oneof.fields]))
        for oneof in kind.DESCRIPTOR.oneofs
    }
    for field in kind.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if field.name == "signatures" or not draw(st.booleans()):
            continue
        if oneof is None or chosen_fields[oneof.name] == field.name:
            _fill(draw, message, field)
    return message


def _fill(draw: st.DrawFn, message: Any, field: Any) -> None:
    target = getattr(message, field.name)
    if field.message_type is None:
        value = texts if field.type == field.TYPE_STRING else st.booleans()
        if field.is_repeated:
            target.extend(draw(st.lists(value, max_size=2)))
        else:
            setattr(message, field.name, draw(value))
    elif field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        for name in draw(st.lists(texts, max_size=2)):
            if inner.message_type is None:
                target[name] = draw(texts)
            else:
                target[name].CopyFrom(draw(messages(inner.message_type._concrete_class)))
    else:
        kind = messages(field.message_type._concrete_class)
        if field.is_repeated:
            target.extend(draw(st.lists(kind, max_size=2)))
        else:
            target.CopyFrom(draw(kind))


@st.composite
def named_cards(draw: st.DrawFn) -> agent_card_pb2.AgentCard:
    """Generate any card with a name: the SDK verifies no empty card."""
    card: agent_card_pb2.AgentCard = draw(messages(agent_card_pb2.AgentCard))
    card.name = draw(texts.filter(bool))
    return card


cards = named_cards()


def to_json(card: agent_card_pb2.AgentCard) -> str:
    return dumps(merged_card_json(card))


@share(0.6)
@given(card=cards)
def test_cards_round_trip(card: agent_card_pb2.AgentCard) -> None:
    received = parse_card(to_json(card))
    assert specified_form(received) == specified_form(card)
    assert pruned_form(received) == pruned_form(card)


@share(0.6)
@given(card=cards)
def test_the_pruned_form_equals_the_sdks_for_any_card(card: agent_card_pb2.AgentCard) -> None:
    expected = _canonicalize_agent_card(parse_agent_card(json.loads(to_json(card))))
    assert pruned_form(card).decode() == expected


@share(0.4)
@given(card=cards, other=cards)
def test_a_signature_is_valid_for_its_card_only(
    signer: CardSigner, card: agent_card_pb2.AgentCard, other: agent_card_pb2.AgentCard
) -> None:
    signed = copy.deepcopy(card)
    signer.sign(signed, base_url="http://h")
    trusted = parse_trusted_keys(key_set(KEY))
    assert verify_card(to_json(signed).encode(), trusted).form == SPECIFIED
    create_signature_verifier(lambda kid, jku: jwt.PyJWK(KEY.jwk()), ["ES256"])(
        parse_agent_card(json.loads(to_json(signed)))
    )
    other_signed = copy.deepcopy(other)
    other_signed.signatures.extend(signed.signatures)
    if pruned_form(other) != pruned_form(card):
        with pytest.raises(InvalidSignatureError):
            verify_card(to_json(other_signed).encode(), trusted)


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> CardSigner:
    path = tmp_path_factory.mktemp("keys") / "card.pem"
    path.touch(mode=0o600)
    path.write_bytes(KEY.pem())
    return CardSigner(path, "main")
