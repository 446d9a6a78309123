"""Malformed gRPC calls, and checks of their ends."""

import asyncio
import random
from contextlib import suppress
from typing import Any, Final

import grpc
from a2a.types import a2a_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from harness.hostile.http_probe import PATIENCE_S
from harness.hostile.mutations import Mutator
from harness.hostile.valid_calls import V0_3, V1, Targets, grpc_calls

# Statuses that blame the server.
_FAULTS: Final = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
}
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


class GrpcProbe:
    """Makes malformed calls, and checks the end of each."""

    def __init__(self, channel: grpc.aio.Channel, address: str, rng: random.Random) -> None:
        self._channel = channel
        host, _, port = address.rpartition(":")
        self._place = (host, int(port))
        self._rng = rng
        self._spoil = Mutator(rng)

    async def provoke(self, targets: Targets) -> str:
        """Make a call; return its status. Assert that it does not blame the server."""
        rng = self._rng
        method, request = rng.choice(grpc_calls(targets))
        body = self._body(request)
        if rng.random() < 0.05:
            method = rng.choice((V1 + "Nope", "/x/y", V0_3, method.lower(), "/" + "x" * 500))
        compression = grpc.Compression.Gzip if rng.random() < 0.05 else None
        metadata = self._metadata() if rng.random() < 0.4 else []
        calls: Any = self._channel.unary_stream(method)
        async with asyncio.timeout(PATIENCE_S):
            call = calls(body, metadata=metadata, timeout=PATIENCE_S, compression=compression)
            try:
                first = await call.read()
            except grpc.aio.AioRpcError as error:
                _check(error)
                return error.code().name
            finally:
                call.cancel()
        return "OK" if first is not grpc.aio.EOF else "EMPTY"

    async def provoke_raw(self) -> None:
        """Send bytes that are at best the beginning of HTTP/2."""
        rng = self._rng
        reader, writer = await asyncio.open_connection(*self._place)
        bytes_ = rng.choice(
            (
                b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
                _PREFACE[:10],
                _PREFACE,
                _PREFACE + _SETTINGS * 500,
                _PREFACE + _SETTINGS + rng.randbytes(rng.randrange(1, 2000)),
                rng.randbytes(200),
                _PREFACE + _SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"x" * 5000,
                _PREFACE + _SETTINGS + b"\x00\x00\x04\x01\x04\x00\x00\x00\x01\x82\x86\x84\x41",
                _PREFACE + _SETTINGS + b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678" * 300,
                _PREFACE
                + _SETTINGS
                + b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08" * 300,
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(100),
            )
        )
        with suppress(ConnectionError):
            writer.write(bytes_)
            await writer.drain()
        await self.is_served()
        writer.transport.abort()
        with suppress(ConnectionError):
            await reader.read()

    async def is_served(self) -> None:
        """Check that a valid call is answered."""
        call: Any = self._channel.unary_unary(V1 + "ListTasks")
        request = a2a_pb2.ListTasksRequest(tenant="echo").SerializeToString()
        a2a_pb2.ListTasksResponse.FromString(await call(request, timeout=PATIENCE_S))

    def _body(self, request: Message) -> bytes:
        rng = self._rng
        body = request.SerializeToString()
        for _ in range(rng.choice((0, 1, 1, 1, 2, 4))):
            body = self._spoil.bytes(body) if rng.random() < 0.5 else self._odd_field(body)
        return body

    def _odd_field(self, body: bytes) -> bytes:
        """Insert a field of any type somewhere. It may be a legal one."""
        rng = self._rng
        tag = bytes([rng.randrange(1, 16) << 3 | rng.choice((0, 1, 2, 3, 4, 5, 6, 7))])
        content = rng.choice(
            (
                b"",
                b"\x00",
                b"\x01",
                b"\xff" * 9 + b"\x01",
                b"\xff" * 12,
                b"\x05hello",
                b"\x03\xed\xa0\x80",
                b"\x02\xff\xfe",
                b"\x80\x80\x80\x80\x08",
                b"\x00" * 8,
                b"\xf0\x7f" * 4,
                b"\x0a\x0a\x08" * 50,
                b"\xe8\x07" + b"x" * 1000,
                b"\x02\x08\x01",
            )
        )
        at = rng.choice((0, len(body), rng.randrange(len(body) + 1)))
        return body[:at] + tag + content + body[at:]

    def _metadata(self) -> list[tuple[str, str | bytes]]:
        rng = self._rng
        names = (
            "a2a-version",
            "a2a-extensions",
            "x-a2a-extensions",
            "last-event-id",
            "traceparent",
            "tracestate",
            "authorization",
            "x-api-key",
            "trunkline-timeout",
            "x-odd",
            "grpc-x",
        )
        metadata: list[tuple[str, str | bytes]] = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            # Client libraries send no other bytes.
            text = "".join(c for c in self._spoil.odd_text() if " " <= c <= "~").strip()
            metadata.append((rng.choice(names), text))
        if rng.random() < 0.2:
            metadata.append(("odd-bin", rng.randbytes(rng.randrange(100))))
        if rng.random() < 0.05:
            metadata.append(("x-long", "v" * 100_000))
        return metadata


def _check(error: grpc.aio.AioRpcError) -> None:
    assert error.code() not in _FAULTS, error
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        return
    assert isinstance(packed, bytes)
    status = status_pb2.Status.FromString(packed)
    assert status.code == error.code().value[0]
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        for kind in (info, violations):
            detail.Unpack(kind)
    assert info.domain == "a2a-protocol.org"
    assert info.reason != "INVALID_PARAMS" or violations.field_violations, error
