"""Files are fetched from public hosts, within limits."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from harness.remote.socket_server import listening
from trunkline.errors import (
    InvalidArgumentError,
    PeerRefusedError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.mesh.client.safe_fetch.address_guard import FILE_WORDING, AddressGuard
from trunkline.mesh.client.safe_fetch.file_fetcher import FileFetcher

_CONTENT = bytes(range(256)) * 1000


class _Site:
    """A web server with an answer for each path. It records requests in `requests`."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.requests: list[bytes] = []
        self.port = 0

    def at(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        writer.write(self.answers.get(head.split(b" ")[1].decode(), b"HTTP/1.1 404 No\r\n\r\n"))
        await writer.drain()


@pytest.fixture
async def site() -> AsyncIterator[_Site]:
    new_site = _Site()
    new_site.answers["/file"] = _ok(_CONTENT)
    async with listening(new_site.answer) as new_site.port:
        yield new_site


def _ok(content: bytes, *more: str) -> bytes:
    head = "\r\n".join(("HTTP/1.1 200 OK", f"content-length: {len(content)}", *more, "", ""))
    return head.encode() + content


def _redirect_to(url: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n".encode()


async def _fetch(site: _Site, path: str, *, limit_bytes: int = 1_000_000) -> bytes:
    guard = AddressGuard([f"127.0.0.1:{site.port}"], wording=FILE_WORDING)
    async with FileFetcher(guard, limit_bytes=limit_bytes).open(site.at(path)) as pieces:
        return b"".join([piece async for piece in pieces])


async def test_a_file_is_fetched_without_credentials_or_trace_context(site: _Site) -> None:
    assert await _fetch(site, "/file") == _CONTENT
    assert b"accept-encoding: identity" in site.requests[0].lower()
    assert b"authorization" not in site.requests[0].lower()
    assert b"traceparent" not in site.requests[0].lower()


async def test_targets_of_redirects_are_checked_like_urls_of_callers(site: _Site) -> None:
    site.answers["/moved"] = _redirect_to("/file")
    site.answers["/inside"] = _redirect_to("http://127.0.0.1:1/secret")
    site.answers["/metadata"] = _redirect_to("https://169.254.169.254/latest")
    site.answers["/file-url"] = _redirect_to("file:///etc/passwd")
    site.answers["/round"] = _redirect_to("/round")

    assert await _fetch(site, "/moved") == _CONTENT
    for path in ("/inside", "/metadata", "/file-url"):
        with pytest.raises(InvalidArgumentError, match="must"):
            await _fetch(site, path)
    with pytest.raises(PeerRefusedError, match="redirects too often"):
        await _fetch(site, "/round")


async def test_private_addresses_are_not_fetched(site: _Site) -> None:
    for url in (site.at("/file"), "https://127.0.0.1/x", "https://[::1]/x", "ftp://a/b"):
        with pytest.raises(InvalidArgumentError, match=r"part\.url: must"):
            async with FileFetcher(AddressGuard(wording=FILE_WORDING)).open(url):
                pass
    assert site.requests == []


async def test_errors_refer_to_files_and_not_to_webhooks(site: _Site) -> None:
    for url, expected in (
        (site.at("/file"), "TRUNKLINE_ALLOW_FETCH=HOST"),
        ("https://user:word@example.org/x", "send the file itself"),
        ("https://example.org:22/x", "must have port 443"),
        ("ftp://a/b", "https://example.com/report.pdf"),
        ("https://example.org/" + "x" * 10_000, "of at most"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            async with FileFetcher(AddressGuard(wording=FILE_WORDING)).open(url):
                pass
        assert expected in str(caught.value)
        assert "hook" not in str(caught.value)


async def test_a_host_that_cant_be_resolved_may_be_tried_again() -> None:
    async def resolve(_host: str) -> tuple[str, ...]:
        return ()

    guard = AddressGuard(resolve=resolve, wording=FILE_WORDING)
    with pytest.raises(PeerUnavailableError, match=r"example\.org .*can't be resolved now"):
        async with FileFetcher(guard).open("https://example.org/x"):
            pass


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 No\r\n\r\n", PeerRefusedError),
        (b"HTTP/1.1 503 Later\r\n\r\n", PeerUnavailableError),
        (_ok(b"x", "content-encoding: gzip"), PeerRefusedError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n", InvalidArgumentError),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1_000_001), InvalidArgumentError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", PeerUnavailableError),
        (b"nonsense\r\n\r\n", PeerUnavailableError),
    ],
)
async def test_an_invalid_or_too_large_response_is_an_error(
    site: _Site, answer: bytes, expected: type[TrunklineError]
) -> None:
    site.answers["/other"] = answer
    with pytest.raises(expected):
        await _fetch(site, "/other")
