"""Types of messages, their versions, and conversion between envelopes and what agents see."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from trunkline.agents.message_handlers import MessageHandlers
from trunkline.core.json_values import update_struct
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.messages.conversion import build_envelope, build_reply, read_message
from trunkline.messages.store import Envelope
from trunkline.messages.types import (
    Broadcast,
    EvaluationResult,
    MessageTypes,
    Proposal,
    UserMessage,
    message_type,
)
from trunkline.tasks.messages import Reply


class First(BaseModel):
    total: int = Field(ge=0)


class Second(First):
    currency: str


@pytest.fixture
def types() -> MessageTypes:
    known = MessageTypes()
    known.register(First, name="invoice")
    known.register(Second, name="invoice", version=2)
    return known


def with_data(name: str, values: Mapping[str, Any], version: int = 0) -> Envelope:
    envelope = Envelope(type=name, type_version=version)
    update_struct(envelope.data, values)
    return envelope


def test_versions_are_side_by_side_and_the_newest_is_the_default(types: MessageTypes) -> None:
    assert types.validate(with_data("invoice", {"total": 3}, version=1)) == First(total=3)
    second = types.validate(with_data("invoice", {"total": 3, "currency": "EUR"}))
    assert second == Second(total=3, currency="EUR")
    with pytest.raises(InvalidArgumentError, match=r"invoice\.currency: Field required"):
        types.validate(with_data("invoice", {"total": 3}))
    # A version that is not known here is passed on as it is.
    assert types.validate(with_data("invoice", {"a": 1}, version=3)) == '{"a": 1}'


@pytest.mark.parametrize(
    ("name", "version", "problem"),
    [
        ("Invoice", 1, "use lower-case letters"),
        ("", 1, "use lower-case letters"),
        ("invoice", 0, "its version must be at least 1"),
        ("invoice", 2, "version 2 is registered by"),
    ],
)
def test_a_wrong_declaration_is_an_error(
    types: MessageTypes, name: str, version: int, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        types.register(First, name=name, version=version)


@pytest.mark.parametrize(
    ("model", "values", "field"),
    [
        ("evaluation_request", {"proposal": ""}, "proposal"),
        ("evaluation_request", {"proposal": "x" * 50_001}, "proposal"),
        ("evaluation_request", {"proposal": "x", "urgency": "now"}, "urgency"),
        ("evaluation_result", {"approved": True, "proposal": "x", "score": 101}, "score"),
        ("evaluation_result", {"proposal": "x"}, "approved"),
        ("proposal", {"draft": 1}, "draft"),
        ("system", {"event": "explode"}, "event"),
    ],
)
def test_payloads_of_the_built_in_types_have_bounds(
    model: str, values: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"{model}\.{field}: "):
        build_envelope(values, type=model, recipient="a")


def test_a_payload_is_an_object_text_or_a_mapping() -> None:
    by_model = build_envelope(Proposal(draft="x"), recipient="a")
    by_name = build_envelope({"draft": "x"}, type="proposal", recipient="a")
    by_text = build_envelope("x", type="proposal", recipient="a")
    messages = [read_message(each) for each in (by_model, by_name, by_text)]
    assert [each.payload for each in messages] == [Proposal(draft="x")] * 3
    assert [each.text for each in messages] == ['{"draft": "x"}'] * 2 + ["x"]
    assert read_message(build_envelope("hi", recipient="a")).payload == UserMessage(content="hi")
    # Senders of newer versions may add fields.
    more = read_message(build_envelope({"draft": "x", "n": 1}, type="proposal", recipient="a"))
    assert isinstance(more.payload, Proposal)
    assert more.payload.model_extra == {"n": 1.0}


def test_wrong_payloads_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match="First is no type; declare it"):
        build_envelope(First(total=1), recipient="a")
    with pytest.raises(InvalidArgumentError, match="is 'broadcast', but the payload is of 'propo"):
        build_envelope(Proposal(draft="x"), type="broadcast", recipient="a")
    with pytest.raises(InvalidArgumentError, match="type: is missing; a mapping needs one"):
        build_envelope({"draft": "x"}, recipient="a")
    with pytest.raises(InvalidArgumentError, match="priority: is 'urgent'; it must be low, normal"):
        build_envelope("x", recipient="a", priority="urgent")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="metadata: "):
        build_envelope("x", recipient="a", metadata={"when": object()})


def test_replies_have_the_type_of_their_payload() -> None:
    result = EvaluationResult(approved=True, proposal="x")
    assert build_reply(result).type == "evaluation_result"
    assert build_reply("done").type == "answer"
    reply = build_reply(Reply("x", type="note", recipient="b", room="den", priority="low"))
    assert (reply.type, reply.recipient, reply.room, reply.priority) == ("note", "b", "den", 1)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.text(max_size=50),
    st.dictionaries(st.text(max_size=8), json_values, max_size=4),
    st.sampled_from(["low", "normal", "high"]),
)
def test_what_is_sent_is_what_is_read(text: str, metadata: dict[str, Any], priority: Any) -> None:
    sent = build_envelope(
        Broadcast(content=text), recipient="all", metadata=metadata, priority=priority, id="1"
    )
    read = read_message(Envelope.FromString(sent.SerializeToString()))
    assert read.payload == Broadcast(content=text)
    assert (read.metadata, read.priority, read.recipient) == (metadata, priority, "all")


def test_handlers_are_found_by_version_name_and_star() -> None:
    name = f"t{random.randrange(10**9)}"

    @message_type(name, version=2)
    class Order(BaseModel):
        number: int

    async def handler(_task: object, _payload: object) -> None:
        pass

    def generator(_task: object, _payload: object) -> Iterator[str]:
        yield "x"

    handlers = MessageHandlers()
    handlers.add("a", Order, handler)
    handlers.add("a", "*", handler)
    assert handlers.types == ["*", f"{name}@2"]
    order = {"number": 1}
    second = read_message(with_data(name, order, version=2))
    newest = read_message(with_data(name, order))
    assert handlers.find(second) == handlers.find(newest) == f"{name}@2"
    assert handlers.find(read_message(with_data(name, order, version=1))) == "*"
    with pytest.raises(InvalidArgumentError, match=rf"{name}\.payload: is text; give its fields"):
        handlers.call(f"{name}@2", None, read_message(Envelope(type=name, text="x")))  # type: ignore[arg-type]
    for wrong, problem in (
        ((Order, handler), "two handlers"),
        ((First, handler), "First is no type"),
        (("x", generator), "yields, so it must be `async def`"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            handlers.add("a", *wrong)
