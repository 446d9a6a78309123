"""Unary HTTP/1.1 requests to this machine, without TLS and proxies.

A general HTTP client takes more time for a short call of an agent than the agent. This one does the
part of RFC 9112 that such a call needs: a body of known length, and responses with a length, in
chunks, or until the end of the connection.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from trunkline.errors import PeerProtocolError, PeerTimeoutError
from trunkline_bridge.client.errors import ConnectionLostError, NotProcessedError

_MAX_CONNECTIONS: Final = 1000
_MAX_HEAD_BYTES: Final = 64 * 1024
_WITHOUT_BODY: Final = frozenset({204, 304})


class PlainResponse(NamedTuple):
    """A response with its whole body."""

    status: int
    headers: Mapping[str, str]
    """Their names are in lower case."""
    body: bytes


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class PlainHttp:
    """Connections to one address, which are used again. Call `close` at the end."""

    def __init__(
        self, peer: str, host: str, port: int, *, connect_s: float, keepalive_s: float
    ) -> None:
        """Prepare connections to a host; none is made yet.

        Args:
            peer: The peer's name in errors.
            host: A name or an IP address.
            port: A TCP port.
            connect_s: Limit of making a connection.
            keepalive_s: Time after which an unused connection is not used again.
        """
        self._peer = peer
        self._host = host
        self._port = port
        self._connect_s = connect_s
        self._keepalive_s = keepalive_s
        self._free = asyncio.Semaphore(_MAX_CONNECTIONS)
        # Those used last are at the end.
        self._idle: deque[tuple[float, _Connection]] = deque()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop()[1].writer.close()

    async def request(
        self, head: bytes, body: bytes, *, timeout_s: float, max_body_bytes: int
    ) -> PlainResponse:
        """Send a request and read its whole response.

        Args:
            head: The request line and the headers, without `Content-Length` and the empty line.
            body: The body.
            timeout_s: Limit of the time until the response is complete.
            max_body_bytes: Limit of the response's body.

        Raises:
            NotProcessedError: No connection can be made.
            ConnectionLostError, PeerTimeoutError, PeerProtocolError: There is no such response.
        """
        async with self._free:
            connection = self._take() or await self._connect()
            is_reusable = False
            try:
                async with asyncio.timeout(timeout_s):
                    length = b"Content-Length: %d\r\n\r\n" % len(body)
                    connection.writer.write(b"".join((head, length, body)))
                    await connection.writer.drain()
                    response, is_reusable = await self._read(connection.reader, max_body_bytes)
            except TimeoutError as error:
                raise PeerTimeoutError(self._peer, "nothing came for too long") from error
            except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
                raise ConnectionLostError(self._peer, "the connection broke") from error
            finally:
                if is_reusable:
                    self._idle.append((asyncio.get_running_loop().time(), connection))
                else:
                    connection.writer.close()
            return response

    def _take(self) -> _Connection | None:
        """Return a connection that can be used again; None if there is none."""
        oldest_s = asyncio.get_running_loop().time() - self._keepalive_s
        while self._idle and self._idle[0][0] < oldest_s:
            self._idle.popleft()[1].writer.close()
        while self._idle:
            _, connection = self._idle.pop()
            if not (connection.reader.at_eof() or connection.writer.is_closing()):
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                return _Connection(
                    *await asyncio.open_connection(self._host, self._port, limit=_MAX_HEAD_BYTES)
                )
        except OSError as error:  # TimeoutError is one.
            raise NotProcessedError(self._peer, "nothing answers at its address") from error

    async def _read(
        self, reader: asyncio.StreamReader, max_body_bytes: int
    ) -> tuple[PlainResponse, bool]:
        """Return a response, and whether the connection can be used again."""
        status = 100
        while status < 200:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            version, status_text, *_ = first.split(" ", 2)
            status = int(status_text)
        headers: dict[str, str] = {}
        for line in lines[:-2]:
            name, _, value = line.partition(":")
            name = name.lower()
            headers[name] = (
                f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
            )
        is_reusable = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if status in _WITHOUT_BODY:
            body = b""
        elif "transfer-encoding" in headers:
            body = await self._read_chunks(reader, max_body_bytes)
        elif "content-length" in headers:
            length = int(headers["content-length"])
            self._check_length(length, max_body_bytes)
            body = await reader.readexactly(length)
        else:
            is_reusable = False
            body = await reader.read(max_body_bytes + 1)
            while body and not reader.at_eof():
                self._check_length(len(body), max_body_bytes)
                body += await reader.read(max_body_bytes + 1)
        return PlainResponse(status, headers, body), is_reusable

    async def _read_chunks(self, reader: asyncio.StreamReader, max_body_bytes: int) -> bytes:
        pieces: list[bytes] = []
        total = 0
        while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            total += size
            self._check_length(total, max_body_bytes)
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass  # A trailer.
        return b"".join(pieces)

    def _check_length(self, length: int, max_body_bytes: int) -> None:
        if length < 0:
            raise ValueError(length)
        if length > max_body_bytes:
            problem = f"its answer is over {max_body_bytes // 1024:,} KiB"
            raise PeerProtocolError(self._peer, problem)
