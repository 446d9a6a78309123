"""The client selects a supported interface of a card, on an allowed host only."""

import pytest

from trunkline.a2a_client.interfaces import (
    InterfaceSelector,
    parse_host,
    parse_version,
)
from trunkline.v1.agent_card_pb2 import AgentInterface

CARD = "https://agents.example/.well-known/agent-card.json"


def make_interface(
    url: str, binding: str = "JSONRPC", version: str = "1.0", **more: str
) -> AgentInterface:
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=version, **more)


@pytest.mark.parametrize(
    ("url", "address", "is_secure"),
    [
        ("agents.example:443", "agents.example:443", True),
        ("https://agents.example", "agents.example:443", True),
        ("grpcs://agents.example:443/x", "agents.example:443", True),
    ],
)
def test_a_grpc_interface_has_a_host_and_a_port(url: str, address: str, *, is_secure: bool) -> None:
    selected = InterfaceSelector(CARD).select([make_interface(url, "GRPC", "0.3")])
    assert (selected.url, selected.is_secure, selected.version) == (address, is_secure, "0.3")


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example/",
        "https://169.254.169.254/",
        "https://localhost/",
        "https://agents.example.evil.example/",
        "https://agents.example:8443/",
        "http://agents.example/",
        "//x",
    ],
)
def test_an_interface_on_another_host_or_port_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not the card's host and port; list it in `hosts`"):
        InterfaceSelector(CARD, ("other.example:8443", "agents.example:9")).select(
            [make_interface(url)]
        )


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("elsewhere.example", "https://elsewhere.example"),
        ("elsewhere.example", "https://elsewhere.example:8443/a2a"),
        ("elsewhere.example:443", "https://elsewhere.example"),
        ("agents.example", "https://agents.example:8443"),
        ("agents.example:8443", "https://agents.example:8443"),
        ("::1", "https://[::1]:8443"),
        ("[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_an_interface_on_an_allowed_host_is_selected(allowed: str, url: str) -> None:
    selector = InterfaceSelector(CARD, allowed_hosts=(allowed,))
    assert selector.select([make_interface(url)]).url == url


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        ("/a2a", "https://agents.example/a2a"),
        ("../rpc/", "https://agents.example/rpc"),
        ("v1", "https://agents.example/.well-known/v1"),
        ("//agents.example/a2a", "https://agents.example/a2a"),
    ],
)
def test_a_relative_url_is_resolved_against_the_card(url: str, resolved: str) -> None:
    assert InterfaceSelector(CARD).select([make_interface(url)]).url == resolved


@pytest.mark.parametrize(
    ("url", "binding"),
    [("http://agents.example:443/", "JSONRPC"), ("http://agents.example:443", "GRPC")],
)
def test_an_unencrypted_interface_of_an_https_card_is_refused(url: str, binding: str) -> None:
    with pytest.raises(ValueError, match="interfaces without TLS"):
        InterfaceSelector(CARD).select([make_interface(url, binding)])


def test_all_names_of_this_machine_are_one_host() -> None:
    selector = InterfaceSelector("http://127.0.0.1:8000/.well-known/agent-card.json")
    for url in ("http://localhost:8000/", "http://0.0.0.0:8000/", "http://[::1]:8000/"):
        assert selector.select([make_interface(url)]).is_secure is False


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://agents.example@evil.example/",
        "https://agents.example:443.evil.example/",
        "ftp://agents.example/",
        "https://",
        "https://[::1",
    ],
)
def test_an_interface_with_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no interface that we speak"):
        InterfaceSelector(CARD).select([make_interface(url)])


@pytest.mark.parametrize(
    ("declared", "version"),
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
def test_versions_are_compared_by_major_and_minor(declared: str, version: str | None) -> None:
    assert parse_version(declared) == version


def test_the_host_of_any_address_is_parsed() -> None:
    assert [
        parse_host(url) for url in ("a.example:1", "https://A.example./x", "[::1]:2", "x://")
    ] == [
        "a.example",
        "a.example",
        "::1",
        "",
    ]
