"""The hosts of an endpoint: which requests it serves, and the canonical form of their Host."""

from typing import Any

import pytest

from trunkline.a2a_wire.errors import WireError
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline_bridge.http.bound_addresses import BoundAddresses
from trunkline_bridge.http.host_guard import HostGuard

Scope = dict[str, Any]


def make_guard(bound: str = "http://127.0.0.1:8000", **settings: Any) -> HostGuard:
    return HostGuard(Settings(**settings), BoundAddresses(http=bound))


def make_scope(*hosts: str, server: tuple[str, int | None] | None = ("127.0.0.1", 8000)) -> Scope:
    headers = [(b"accept", b"*/*"), *((b"host", host.encode("latin-1")) for host in hosts)]
    return {
        "type": "http",
        "http_version": "1.1",
        "path": "/",
        "raw_path": b"/",
        "server": server,
        "headers": headers,
    }


def check(guard: HostGuard, host: str, server: tuple[str, int | None] = ("127.0.0.1", 8000)) -> int:
    """Return the status of the refusal, or 200."""
    try:
        guard.check(make_scope(host, server=server))
    except WireError as error:
        return error.kind.http_status
    return 200


@pytest.mark.parametrize(
    ("public_url", "accepted", "refused"),
    [
        ("https://mesh.example", ["mesh.example", "mesh.example:443"], ["mesh.example:8000"]),
        ("https://mesh.example:8443/a2a/", ["mesh.example:8443", "mesh.example"], ["mesh:8443"]),
        ("http://Mesh.example.", ["mesh.example", "MESH.example:80"], ["mesh.example:443"]),
        ("http://[2001:db8::1]:9000", ["[2001:DB8:0::1]:9000"], ["[2001:db8::1]:1"]),
        ("https://m\xfcnchen.example", ["xn--mnchen-3ya.example"], ["munchen.example"]),
    ],
)
def test_the_host_of_the_public_url_is_accepted(
    public_url: str, accepted: list[str], refused: list[str]
) -> None:
    guard = make_guard(public_url=public_url)
    assert {host: check(guard, host) for host in accepted} == dict.fromkeys(accepted, 200)
    assert {host: check(guard, host) for host in refused} == dict.fromkeys(refused, 421)


def test_an_allowed_host_may_name_a_port() -> None:
    guard = make_guard(allowed_hosts=("Bridge", "mesh.example:443", "[2001:db8::1]:9000"))
    accepted = ["bridge", "bridge.:1234", "mesh.example", "mesh.example:443", "[2001:db8::1]:9000"]
    assert {host: check(guard, host) for host in accepted} == dict.fromkeys(accepted, 200)
    refused = ["bridge.example", "mesh.example:8000", "[2001:db8::1]"]
    assert {host: check(guard, host) for host in refused} == dict.fromkeys(refused, 421)


@pytest.mark.parametrize("host", ["", "http://mesh.example", "*", "*.example", "a b", "m\xfcnchen"])
def test_a_malformed_allowed_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed_hosts"):
        make_guard(allowed_hosts=(host,))


@pytest.mark.parametrize(
    "url", ["mesh.example", "ftp://mesh.example", "http://a b", "http://", "http://[::1"]
)
def test_a_malformed_public_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="public_url"):
        make_guard(public_url=url)


@pytest.mark.parametrize(
    ("bound", "server", "accepted", "refused"),
    [
        # A bridge that listens on the name of its container.
        (
            "http://bridge:8000",
            ("172.17.0.2", 8000),
            ["bridge:8000", "bridge:8080", "172.17.0.2:8000", "10.0.0.1:8080", "localhost:9999"],
            ["other:8000", "bridge.example:8000"],
        ),
        ("http://[::]:8000", ("::1", 8000), ["[::1]:9999", "[fe80::1]", "127.0.0.1"], ["ip6-host"]),
        # A tunnel to a bridge on loopback has another port.
        ("http://[::1]:8000", ("::1", 8000), ["[::1]:9999", "localhost:9999"], ["[fe80::1]"]),
        # An ASGI server that is not ours has told us no address.
        ("", ("asgi", None), ["asgi", "asgi:1", "localhost:1"], ["asgi.example", "10.0.0.1"]),
    ],
)
def test_the_bound_address_decides_what_is_accepted_by_default(
    bound: str, server: tuple[str, int | None], accepted: list[str], refused: list[str]
) -> None:
    guard = make_guard(bound)
    results = {host: check(guard, host, server) for host in (*accepted, *refused)}
    assert results == {**dict.fromkeys(accepted, 200), **dict.fromkeys(refused, 421)}


def test_accepting_a_host_once_accepts_it_at_that_server_only() -> None:
    guard = make_guard("")
    assert check(guard, "asgi:8000", ("asgi", 8000)) == 200
    assert check(guard, "asgi:8000", ("other", 8000)) == 421


def test_a_server_without_an_address_serves_only_configured_hosts_and_loopback() -> None:
    """ASGI servers on Unix sockets have none."""
    guard = make_guard("", public_url="https://mesh.example")
    for host in ("mesh.example", "localhost"):
        assert guard.check(make_scope(host, server=None))
    with pytest.raises(WireError, match=r"evil\.example is not a host of this endpoint"):
        guard.check(make_scope("evil.example", server=None))


def test_other_scopes_than_http_pass() -> None:
    scope = {"type": "lifespan"}
    assert make_guard().check(scope) is scope
