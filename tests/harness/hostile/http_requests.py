"""Malformed HTTP requests, each malformed in another way."""

import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.hostile.mutations import Mutator
from harness.hostile.valid_calls import Targets, json_rpc, rest

_BOMB: Final = gzip.compress(b" " * 4_000_000)
_RPC_PATHS: Final = (b"/", b"/agents/echo", b"/agents/echo/")


@dataclass(frozen=True, slots=True)
class Request:
    """A request, part by part."""

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    version: bytes = b"HTTP/1.1"
    ending: bytes = b""
    """Bytes after the body."""
    is_framed: bool = True
    """True if it is valid HTTP, so that exactly one answer is due."""
    has_length: bool = True

    @property
    def is_json_rpc(self) -> bool:
        """True if its method and path are those of JSON-RPC."""
        return self.method == b"POST" and self.target in _RPC_PATHS

    def render(self) -> bytes:
        """Return its bytes."""
        lines = [b" ".join((self.method, self.target, self.version))]
        lines += [name + b": " + value for name, value in self.headers]
        if self.has_length:
            lines.append(b"Content-Length: %d" % len(self.body))
        return b"\r\n".join([*lines, b"", b""]) + self.body + self.ending


class Hostile:
    """Makes malformed requests."""

    def __init__(self, rng: random.Random, host: str) -> None:
        self.rng = rng
        self._spoil = Mutator(rng)
        self._host = host.encode()

    def request(self, targets: Targets) -> Request:
        """Return a malformed request."""
        rng = self.rng
        mutated = self._json_rpc(targets) if rng.random() < 0.55 else self._rest(targets)
        if rng.random() < 0.3:
            mutated = rng.choice(
                (self._odd_header, self._odd_header, self._odd_line, self._odd_frame)
            )(mutated)
        return mutated

    def _json_rpc(self, targets: Targets) -> Request:
        rng = self.rng
        version, call = rng.choice(json_rpc(targets))
        headers = [(b"Content-Type", b"application/json")]
        if rng.random() < 0.5:
            headers.append((b"A2A-Version", version.encode()))
        return self._made(b"POST", rng.choice(_RPC_PATHS), headers, self._spoil.json(call))

    def _rest(self, targets: Targets) -> Request:
        rng = self.rng
        method, target, body = rng.choice(rest(targets))
        base = rng.choice(("", "/agents/echo"))
        target_bytes = (base + target).encode()
        if rng.random() < (0.2 if body is not None else 0.7):
            target_bytes = self._odd_target(target_bytes)
        content = b"" if body is None else self._spoil.json(body)
        kind = [(b"Content-Type", b"application/json")] if body is not None else []
        return self._made(method.encode(), target_bytes, kind, content)

    def _made(
        self, method: bytes, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Request:
        return Request(method, target, [(b"Host", self._host), *headers], body)

    def _odd_target(self, target: bytes) -> bytes:
        rng = self.rng
        odd = rng.choice(
            (
                b"%00",
                b"%ff",
                b"%2f",
                b"%2F..%2f",
                b"%",
                b"%zz",
                b"%u0000",
                b"//",
                b"/./",
                b"/../",
                b";a=b",
                b"?",
                b"??",
                b"&pageSize=-1",
                b"&pageSize=999999999999999999999",
                b"&pageSize=1&pageSize=2",
                b"&historyLength=%ff",
                b"&historyLength=1e3",
                b"&status=&status=x",
                b"&includeArtifacts=maybe",
                b"&pageToken=" + b"A" * 3000,
                b"&contextId=%00",
                b"&a2a-version=9",
                b"&A2A-Version=9.9",
                b"=",
                b"%C3%A9",
                b"%ed%a0%80",
                b":cancel",
                b":subscribe:cancel",
                b":",
                b"x" * 4000,
                b"%0d%0aX: y",
            )
        )
        at = rng.choice((len(target), rng.randrange(1, len(target) + 1)))
        if odd.startswith(b"&") and b"?" not in target:
            odd = b"?" + odd[1:]
        return target[:at] + odd + target[at:]

    def _odd_header(self, mutated: Request) -> Request:
        rng = self.rng
        text = self._spoil.odd_text().encode("latin-1", "replace")
        name = rng.choice(
            (
                b"A2A-Version",
                b"A2A-Extensions",
                b"X-A2A-Extensions",
                b"Last-Event-ID",
                b"Trunkline-Timeout",
                b"Trunkline-Tree",
                b"traceparent",
                b"tracestate",
                b"Authorization",
                b"X-API-Key",
                b"Content-Type",
                b"Accept",
                b"Origin",
                b"If-None-Match",
                b"If-Modified-Since",
                b"Cookie",
                b"X-Forwarded-For",
                b"Host",
                b"Range",
                b"baggage",
            )
        )
        odd = [
            lambda: replace(mutated, headers=[*mutated.headers, (name, text)]),
            lambda: replace(mutated, headers=[*mutated.headers, (name, text), (name, text)]),
            lambda: replace(
                mutated, headers=[*mutated.headers, *((b"X-%d" % n, b"v") for n in range(300))]
            ),
            lambda: replace(
                mutated, headers=[*mutated.headers, (b"X-Long", b"v" * 200_000)], is_framed=False
            ),
            lambda: replace(mutated, headers=[*mutated.headers, (b"X", b"a\r\nInjected: b")]),
            lambda: replace(
                mutated,
                headers=[*mutated.headers, (b"X", b"a\r\n\r\nGET / HTTP/1.1")],
                is_framed=False,
            ),
            lambda: replace(
                mutated, headers=[*mutated.headers, (b"X", b"a\x00b")], is_framed=False
            ),
            lambda: replace(mutated, headers=[*mutated.headers, (b"X y", b"a")], is_framed=False),
            lambda: replace(mutated, headers=[*mutated.headers, (b"", b"a")], is_framed=False),
            lambda: replace(
                mutated, headers=[*mutated.headers, (b"X", b"a\r\n folded")], is_framed=False
            ),
            lambda: replace(
                mutated,
                headers=[
                    *mutated.headers,
                    (b"Upgrade", rng.choice((b"websocket", b"h2c"))),
                    (b"Connection", b"Upgrade"),
                ],
                is_framed=False,
            ),
            lambda: replace(
                mutated, headers=[*mutated.headers, (b"Expect", b"100-continue")], is_framed=False
            ),
            lambda: replace(
                mutated,
                headers=[
                    *mutated.headers,
                    (
                        b"Connection",
                        rng.choice((b"close", b"keep-alive", b"x, close", text or b"y")),
                    ),
                ],
                is_framed=False,
            ),
            lambda: replace(
                mutated,
                headers=[header for header in mutated.headers if header[0] != b"Host"],
                is_framed=False,
            ),
            lambda: replace(
                mutated, headers=[*mutated.headers, (b"Content-Encoding", b"gzip")], body=_BOMB
            ),
            lambda: replace(
                mutated,
                headers=[
                    *mutated.headers,
                    (b"Content-Encoding", rng.choice((b"br", b"deflate", b"identity", text))),
                ],
            ),
            lambda: replace(
                mutated,
                headers=[
                    (b"Host", self._host),
                    (
                        b"Content-Type",
                        rng.choice(
                            (
                                b"text/plain",
                                b"application/xml",
                                b"application/grpc",
                                b"multipart/form-data; boundary=x",
                                b"application/json; charset=utf-16",
                                text,
                            )
                        ),
                    ),
                ],
            ),
        ]
        mutated = rng.choice(odd)()
        is_text = all(byte == 9 or 32 <= byte < 127 or byte >= 128 for byte in text)
        return mutated if is_text else replace(mutated, is_framed=False)

    def _odd_line(self, mutated: Request) -> Request:
        rng = self.rng
        method = rng.choice((b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"POST"))
        odd = [
            lambda: replace(mutated, method=method),
            lambda: replace(mutated, method=b"HEAD", is_framed=False),
            lambda: replace(
                mutated,
                method=rng.choice(
                    (b"BREW", b"post", b"", b"M-SEARCH", b"TRACE", b"CONNECT", b"PRI", b"G" * 5000)
                ),
                is_framed=False,
            ),
            lambda: replace(
                mutated, target=b"http://" + self._host + mutated.target, is_framed=False
            ),
            lambda: replace(
                mutated,
                target=rng.choice(
                    (
                        b"http://evil.example/",
                        b"*",
                        b"",
                        b"evil:80",
                        b"//evil/",
                        b"http://[::1",
                        b"\xff\xfe",
                        b"/a b",
                        b"/" + b"x" * 100_000,
                    )
                ),
                is_framed=False,
            ),
            lambda: replace(
                mutated,
                version=rng.choice(
                    (
                        b"HTTP/1.0",
                        b"HTTP/0.9",
                        b"HTTP/2.0",
                        b"HTTP/9.9",
                        b"http/1.1",
                        b"HTTP/1.1.1",
                        b"",
                        b"ICY",
                    )
                ),
                is_framed=False,
            ),
        ]
        return rng.choice(odd)()

    def _odd_frame(self, mutated: Request) -> Request:
        rng = self.rng
        body, headers = mutated.body, mutated.headers
        chunk = b"%x\r\n" % len(body)
        chunked = [*headers, (b"Transfer-Encoding", b"chunked")]
        lengths = (b"-1", b"+5", b"0x10", b"1e3", b"", b" ", b"9" * 30, b"5, 5", b"5,6", b"\xb2")
        odd = [
            lambda: replace(
                mutated,
                headers=chunked,
                has_length=False,
                body=chunk + body + b"\r\n0\r\n\r\n",
                is_framed=bool(body),
            ),
            lambda: replace(
                mutated,
                headers=chunked,
                has_length=False,
                body=chunk + body + b"\r\n0\r\nX: y\r\n\r\n",
                is_framed=False,
            ),
            lambda: replace(
                mutated,
                headers=chunked,
                has_length=False,
                body=rng.choice(
                    (
                        b"zz\r\n",
                        b"-1\r\n",
                        b"f" * 40 + b"\r\n",
                        b"5;" + b"x" * 3000 + b"\r\nhello\r\n",
                        b"\r\n",
                        b"0\r\n",
                    )
                )
                + body,
                is_framed=False,
            ),
            lambda: replace(mutated, headers=chunked, is_framed=False),
            lambda: replace(
                mutated,
                headers=[
                    *headers,
                    (
                        b"Transfer-Encoding",
                        rng.choice((b"gzip", b"identity", b"chunked, chunked", b"xchunked")),
                    ),
                ],
                is_framed=False,
            ),
            lambda: replace(
                mutated,
                headers=[*headers, (b"Content-Length", rng.choice(lengths))],
                has_length=False,
                is_framed=False,
            ),
            lambda: replace(
                mutated, headers=[*headers, (b"Content-Length", b"3")], is_framed=False
            ),
            lambda: replace(
                mutated,
                headers=[*headers, (b"Content-Length", b"%d" % (len(body) + 10))],
                has_length=False,
                is_framed=False,
            ),
            lambda: replace(
                mutated,
                headers=[*headers, (b"Content-Length", b"%d" % (len(body) // 2))],
                has_length=False,
                is_framed=False,
            ),
            lambda: replace(mutated, has_length=False, is_framed=False),
            lambda: replace(
                mutated,
                ending=rng.choice((b"\r\n", b"\x00", b"x", b"\x16\x03\x01\x02\x00\x01", b"GET")),
                is_framed=False,
            ),
            lambda: replace(mutated, ending=mutated.render() * 3, is_framed=False),
            lambda: replace(
                mutated,
                ending=b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200,
                is_framed=False,
            ),
        ]
        return rng.choice(odd)()
