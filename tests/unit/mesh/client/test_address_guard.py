"""URLs of callers are accepted or refused by form and by address."""

import socket
from collections.abc import Sequence
from threading import Event

import pytest

from trunkline.errors import ConfigurationError
from trunkline.mesh.client.safe_fetch import dns as names
from trunkline.mesh.client.safe_fetch.address_guard import (
    AddressGuard,
    AddressRefusedError,
    AllowedHost,
    HostUnresolvedError,
    is_public_address,
)

PUBLIC = "93.184.215.14"

PUBLIC_ADDRESSES = [
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "100.63.255.255", "100.128.0.0", "172.15.255.255",
    "172.32.0.1", "192.169.0.1", "198.17.0.1", "223.255.255.254", "2606:4700:4700::1111",
    "2a00:1450:4001::1",
    # These embed public IPv4 addresses.
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1",
]  # fmt: skip
OTHER_ADDRESSES = [
    "0.0.0.0",  # noqa: S104  a value to check, not an address to bind
    "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
    "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.255",
    "240.0.0.1", "255.255.255.255", "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1",
    "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "100::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:2::1", "2001:10::1", "2001:20::1",
    "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::1", "2002:a9fe:a9fe::1", "3fff::1", "4000::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
    "2606:4700::1%eth0", "not an address", "",
]  # fmt: skip


class Resolver:
    """A resolver with one result per lookup. The last result repeats."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.lookups: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.lookups.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if not answer:
            raise OSError("no such name")
        return answer


@pytest.mark.parametrize("address", PUBLIC_ADDRESSES)
def test_globally_reachable_addresses_are_public(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize("address", OTHER_ADDRESSES)
def test_nothing_else_is_public(address: str) -> None:
    assert not is_public_address(address)


async def test_a_public_https_url_may_be_posted_to() -> None:
    guard = AddressGuard(resolve=Resolver([PUBLIC, "2606:4700:4700::1111"]))
    endpoint = await guard.check("https://Example.COM./hooks/a b?x=1#there")
    assert (endpoint.scheme, endpoint.host, endpoint.port) == ("https", "example.com", 443)
    assert endpoint.target == "/hooks/a%20b?x=1"
    assert endpoint.authority == "example.com"


async def test_a_name_that_is_not_ascii_is_looked_up_in_its_ascii_form() -> None:
    resolver = Resolver([PUBLIC])
    endpoint = await AddressGuard(resolve=resolver).check("https://bücher.example:8443/")
    assert resolver.lookups == ["xn--bcher-kva.example"]
    assert endpoint.authority == "xn--bcher-kva.example:8443"


@pytest.mark.parametrize(
    "url",
    [
        "", "example.com/hook", "/hook", "//example.com/hook", "https:///hook", "https://",
        "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/",
        "javascript:alert(1)", "http://example.com/", "https://user@example.com/",
        "https://user:secret@example.com/", "https://example.com\\@127.0.0.1/",
        "https://exam\nple.com/", "https://example.com:0/", "https://example.com:22/",
        "https://example.com:99999/", "https://example.com:-1/", "https://example.com:x/",
        "https://" + "a" * 3000, "https://[::1/",
    ],
)  # fmt: skip
def test_malformed_urls_are_refused(url: str) -> None:
    guard = AddressGuard(resolve=Resolver([PUBLIC]))
    with pytest.raises(AddressRefusedError):
        guard.parse_url(url)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "127.0.0.1.", "127.000.000.001", "0177.0.0.1",
        "0x7f.0.0.1", "0x7f000001", "0x", "2130706433", "017700000001", "8.8.2056",
        "%31%32%37.0.0.1", "169.254.169.254", "[::1]", "[::ffff:7f00:1]", "[::ffff:127.0.0.1]",
        "[fe80::1%25eth0]", "[64:ff9b::7f00:1]", "[fd00:ec2::254]", "a..b", "-a.example",
        "a" * 64 + ".example", ".".join(["a" * 60] * 5), "exa$mple.com",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_refused_in_every_spelling(host: str) -> None:
    # The resolver would accept every host, but none of these may be looked up.
    resolver = Resolver([PUBLIC])
    with pytest.raises(AddressRefusedError):
        await AddressGuard(resolve=resolver).check(f"https://{host}/")
    assert resolver.lookups == []


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], [PUBLIC, "::1"], ["fe80::1%eth0", PUBLIC]]
)
async def test_a_name_is_refused_if_any_of_its_addresses_is_not_public(
    answer: Sequence[str],
) -> None:
    with pytest.raises(AddressRefusedError) as caught:
        await AddressGuard(resolve=Resolver(answer)).check("https://inside.example/")
    # The error reveals nothing about this machine's resolver.
    assert str(caught.value) == str(await _refusal("https://127.0.0.1/"))


async def test_a_name_without_addresses_is_not_called_private() -> None:
    with pytest.raises(HostUnresolvedError, match="can't be resolved now") as caught:
        await AddressGuard(resolve=Resolver([])).check("https://typo.example/")
    assert "public" not in str(caught.value)


async def test_an_allowed_host_may_be_unresolvable_until_a_connection_is_made() -> None:
    guard = AddressGuard(["later.example"], Resolver([], [], ["127.0.0.1"]))
    assert (await guard.check("http://later.example/hook")).host == "later.example"
    with pytest.raises(HostUnresolvedError):
        await guard.resolve_addresses("later.example", 80)
    assert await guard.resolve_addresses("later.example", 80) == ["127.0.0.1"]


async def test_a_name_is_looked_up_each_time() -> None:
    guard = AddressGuard(resolve=Resolver([PUBLIC], ["127.0.0.1"]))
    await guard.check("https://rebinding.example/")
    with pytest.raises(AddressRefusedError):
        await guard.check("https://rebinding.example/")


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("localhost", "http://localhost:9000/hook"),
        ("LocalHost:9000", "http://localhost:9000/hook"),
        ("127.0.0.1", "http://127.0.0.1:22/"),
        ("[::1]:9000", "http://[::1]:9000/"),
        ("[::1]", "https://[0:0:0:0:0:0:0:1]/"),
        ("::1", "https://[::1]/"),
        ("hooks.internal:443", "https://hooks.internal/"),
    ],
)
async def test_an_allowed_host_is_exempt_from_the_rules(allowed: str, url: str) -> None:
    endpoint = await AddressGuard([allowed], Resolver(["127.0.0.1"])).check(url)
    assert endpoint.host


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:9001/",
        "http://127.0.0.1:9000/",
        "https://sub.localhost:9000/",
        "https://localhost.example:9000/",
    ],
)
async def test_an_allowed_host_exempts_no_other_host(url: str) -> None:
    with pytest.raises(AddressRefusedError):
        await AddressGuard(["localhost:9000"], Resolver(["127.0.0.1"])).check(url)


@pytest.mark.parametrize(
    "text", ["", "http://localhost", "a/b", "host:", "host:port", "host:99999", ":9000", "[::1"]
)
def test_an_invalid_host_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--allow-webhook"):
        AllowedHost.parse(text, option="--allow-webhook")


async def test_names_are_resolved_by_the_system() -> None:
    assert "127.0.0.1" in await names.resolve("localhost")


async def test_a_name_that_does_not_exist_has_no_addresses() -> None:
    with pytest.raises(OSError, match=r"\S"):
        await names.resolve("does-not-exist.invalid")


async def test_a_hanging_lookup_times_out_and_their_number_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = Event()

    def hang(*_arguments: object, **_options: object) -> list[object]:
        released.wait()
        raise socket.gaierror("it comes too late")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        for _ in range(16):
            with pytest.raises(OSError, match="too long"):
                await names.resolve("slow.example", timeout_s=0.001)
        with pytest.raises(OSError, match="too many"):
            await names.resolve("slow.example")
    finally:
        released.set()


async def _refusal(url: str) -> AddressRefusedError:
    with pytest.raises(AddressRefusedError) as caught:
        await AddressGuard(resolve=Resolver([PUBLIC])).check(url)
    return caught.value
