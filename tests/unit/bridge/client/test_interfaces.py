"""The client selects a supported interface of a card, on an allowed host only."""

import pytest

from trunkline.v1.agent_card_pb2 import AgentInterface
from trunkline_bridge.client.interfaces import (
    Interface,
    InterfaceSelector,
    ProtocolBinding,
    parse_host,
    parse_version,
)

CARD = "https://agents.example/.well-known/agent-card.json"


def offer(url: str, binding: str = "JSONRPC", version: str = "1.0", **more: str) -> AgentInterface:
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=version, **more)


def test_the_first_that_we_speak_is_taken_with_its_tenant() -> None:
    offered = [
        offer("https://agents.example/soap", "SOAP"),
        offer("https://agents.example/new", version="2.0"),
        offer("https://agents.example/rest/", "http+json", "1.0", tenant="blue"),
        offer("https://agents.example/rpc"),
    ]
    assert InterfaceSelector(CARD).select(offered) == Interface(
        ProtocolBinding.REST, "1.0", "https://agents.example/rest", "blue", is_secure=True
    )


@pytest.mark.parametrize(
    ("url", "address", "is_secure"),
    [
        ("agents.example:50052", "agents.example:50052", True),
        ("https://agents.example", "agents.example:443", True),
        ("grpcs://agents.example:9/x", "agents.example:9", True),
    ],
)
def test_grpc_has_a_host_and_a_port(url: str, address: str, *, is_secure: bool) -> None:
    taken = InterfaceSelector(CARD).select([offer(url, "GRPC", "0.3")])
    assert (taken.url, taken.is_secure, taken.version) == (address, is_secure, "0.3")


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/",
        "https://169.254.169.254/",
        "https://localhost/",
        "https://agents.example.evil.example/",
    ],
)
def test_a_card_leads_nowhere_but_to_its_own_host(url: str) -> None:
    with pytest.raises(ValueError, match="not where the card is"):
        InterfaceSelector(CARD).select([offer(url)])


def test_a_host_that_is_allowed_may_be_led_to() -> None:
    taken = InterfaceSelector(CARD, allowed_hosts=("elsewhere.example",)).select(
        [offer("https://elsewhere.example/")]
    )
    assert taken.url == "https://elsewhere.example"


@pytest.mark.parametrize(
    ("url", "binding"),
    [("http://agents.example/", "JSONRPC"), ("http://agents.example:80", "GRPC")],
)
def test_what_was_told_in_private_is_not_gone_on_with_in_public(url: str, binding: str) -> None:
    with pytest.raises(ValueError, match="not where the card is"):
        InterfaceSelector(CARD).select([offer(url, binding)])


def test_this_machine_has_many_names() -> None:
    choice = InterfaceSelector("http://127.0.0.1:8000/.well-known/agent-card.json")
    for url in ("http://localhost:9/", "http://0.0.0.0:9/", "http://[::1]:9/"):
        assert choice.select([offer(url)]).is_secure is False


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://agents.example@evil.example/",
        "ftp://agents.example/",
        "https://",
        "https://[::1",
        "//x",
    ],
)
def test_no_address_is_no_interface(url: str) -> None:
    with pytest.raises(ValueError, match="no interface that we speak"):
        InterfaceSelector(CARD).select([offer(url)])


def test_only_the_bindings_and_versions_that_are_wanted_are_taken() -> None:
    offered = [
        offer("https://agents.example/a"),
        offer("https://agents.example/b", "HTTP+JSON", "0.3"),
        offer("https://agents.example/c", "HTTP+JSON", "1.0"),
    ]
    choice = InterfaceSelector(CARD, bindings=("HTTP+JSON",), versions=("1.0",))
    assert choice.select(offered).url == "https://agents.example/c"


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("1.0", "1.0"),
        ("1.0.0", "1.0"),
        ("1.7", "1.0"),
        ("0.3", "0.3"),
        ("0.3.0", "0.3"),
        ("0.2.6", "0.3"),
        ("", "0.3"),
        ("0.1", None),
        ("2.0", None),
        ("one", None),
    ],
)
def test_versions_are_major_and_minor(said: str, version: str | None) -> None:
    assert parse_version(said) == version


def test_a_host_is_found_in_any_address() -> None:
    assert [
        parse_host(url) for url in ("a.example:1", "https://A.example./x", "[::1]:2", "x://")
    ] == [
        "a.example",
        "a.example",
        "::1",
        "",
    ]
