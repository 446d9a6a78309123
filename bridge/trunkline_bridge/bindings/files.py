"""Which bytes of a file a request asks for (RFC 9110, 13 and 14)."""

import asyncio
import base64
import logging
import re
from typing import Final, NamedTuple
from urllib.parse import quote

from google.rpc import code_pb2

from trunkline.client import Directory
from trunkline.client.artifacts import ArtifactClient, Download, Reference
from trunkline.errors import ArtifactNotFoundError, TaskNotFoundError, TrunklineError
from trunkline_bridge.bindings.http_handler import (
    ErrorResponse,
    EventsContext,
    HttpRequest,
    HttpResponse,
)
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.caller import CallerFactory
from trunkline_bridge.edge.http import METHOD_NOT_ALLOWED, encode_headers, rest_error_body
from trunkline_bridge.edge.in_flight import CONNECTION_KEY, Connection
from trunkline_bridge.errors import ErrorKind, WireError
from trunkline_bridge.projection.links import FILES_PATH as FILES_PATH
from trunkline_bridge.projection.links import find_reference_at_path
from trunkline_bridge.versions.json_values import dumps

_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """Bytes of a file: from the first to before the last."""

    begin: int
    end: int


class UnsatisfiableRangeError(Exception):
    """The file has no such bytes."""


def parse_range(
    given: str | None, condition: str | None, *, etag: str, size: int
) -> ByteRange | None:
    """Return the bytes that `Range` asks for, under `If-Range`; None: all of them.

    Several ranges, units other than bytes, and what is none of either are answered with all.

    Raises:
        Unsatisfiable: it begins behind the end.
    """
    if given is None or (condition is not None and condition.strip() != etag):
        return None
    found = _RANGE.fullmatch(given)
    if found is None:
        return None
    first, last = found.groups()
    if not first:
        if not last:
            return None
        if not int(last) or not size:
            raise UnsatisfiableRangeError
        return ByteRange(max(0, size - int(last)), size)
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise UnsatisfiableRangeError
    return ByteRange(int(first), min(int(last) + 1, size) if last else size)


def fails_if_match(given: str | None, *, etag: str) -> bool:
    """Whether `If-Match` has tags, and none is the file's, compared strongly."""
    if given is None:
        return False
    tags = {tag.strip() for tag in given.split(",")}
    return "*" not in tags and etag not in tags


def matches_if_none_match(given: str | None, *, etag: str) -> bool:
    """Whether `If-None-Match` has the file's tag, compared weakly."""
    if given is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    return "*" in tags or etag in tags


logger = logging.getLogger(__name__)

FILE_NOT_FOUND: Final = ErrorKind(-32001, "ARTIFACT_NOT_FOUND", 404, code_pb2.NOT_FOUND)
RANGE_NOT_SATISFIABLE: Final = ErrorKind(
    -32602, "RANGE_NOT_SATISFIABLE", 416, code_pb2.OUT_OF_RANGE
)
PRECONDITION_FAILED: Final = ErrorKind(
    -32602, "PRECONDITION_FAILED", 412, code_pb2.FAILED_PRECONDITION
)

_ALLOWED_METHODS: Final = "GET, HEAD, OPTIONS"
# A reader that takes nothing for so long gives its place to others; it may come back by Range.
_WRITE_TIMEOUT_S: Final = 60.0
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)
_DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
_SHOWN_LENGTH: Final = 100


class FileBinding:
    """`GET /artifacts/TASK/FILE/NAME`: a binding beside those of A2A.

    What a file is called and says it is comes from agents and callers: browsers are told to keep
    it, and neither to show nor to run it.
    """

    def __init__(self, directory: Directory, callers: CallerFactory, *, patience_s: float) -> None:
        self._artifacts = ArtifactClient(directory, patience_s=patience_s)
        self._callers = callers

    async def respond(self, call: HttpRequest, reply: HttpResponse) -> EventsContext | None:
        """Answer a call."""
        method = call.scope["method"]
        if method not in ("GET", "HEAD"):
            reply.headers["allow"] = _ALLOWED_METHODS
            if method == "OPTIONS":
                await reply.send_nothing()
                return None
            text = f"{method[:_SHOWN_LENGTH]} is not served here; send {_ALLOWED_METHODS}"
            raise WireError(METHOD_NOT_ALLOWED, text)
        identity = await self._callers.authenticate(call.headers)
        reference = find_reference_at_path(call.scope["path"].removeprefix(FILES_PATH))
        if reference is None:
            raise _file_not_found()
        tracing.name_request_span("GetArtifact", "")
        try:
            # What it is decides which of it is read.
            async with self._artifacts.open(reference, account=identity.account) as file:
                known = file
            await self._send(call, reply, reference, known, identity.account)
        except (TaskNotFoundError, ArtifactNotFoundError):
            if reply.has_begun:
                raise
            raise _file_not_found() from None
        return None

    def failure(self, error: WireError, _reply: HttpResponse) -> ErrorResponse:
        """Return an error, under its own status."""
        return ErrorResponse(error.kind.http_status, dumps(rest_error_body(error)).encode())

    async def _send(
        self,
        call: HttpRequest,
        reply: HttpResponse,
        reference: Reference,
        file: Download,
        account: str,
    ) -> None:
        etag = f'"{file.sha256}"'
        get = call.headers.get
        reply.headers |= {"etag": etag, "accept-ranges": "bytes"}
        # In the order of RFC 9110, 13.2.2. Without a date of its own, none that is given counts.
        if fails_if_match(get(b"if-match"), etag=etag):
            raise WireError(PRECONDITION_FAILED, f"this file is {etag}; none that If-Match has")
        if matches_if_none_match(get(b"if-none-match"), etag=etag):
            await _start_response(reply, 304, {}, is_whole=True)
            return
        size = file.size_bytes
        # Ranges are GET's alone (14.2).
        asked = get(b"range") if call.scope["method"] == "GET" else None
        try:
            span = parse_range(asked, get(b"if-range"), etag=etag, size=size)
        except UnsatisfiableRangeError:
            reply.headers["content-range"] = f"bytes */{size}"
            text = f"the file has {size} bytes; ask for some of these"
            raise WireError(RANGE_NOT_SATISFIABLE, text) from None
        headers = _file_headers(file)
        status, (begin, end) = 200, ByteRange(0, size)
        if span is not None:
            status, (begin, end) = 206, span
            headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
        headers["content-length"] = str(end - begin)
        if call.scope["method"] == "HEAD" or begin == end:
            await _start_response(reply, status, headers, is_whole=True)
            return
        try:
            async with self._artifacts.open(
                reference, account=account, offset=begin, length=end - begin
            ) as download:
                await _start_response(reply, status, headers, is_whole=False)
                async for chunk in download:
                    piece = {"type": "http.response.body", "body": chunk, "more_body": True}
                    async with asyncio.timeout(_WRITE_TIMEOUT_S):
                        await reply.send(piece)
        except (TrunklineError, TimeoutError) as error:
            # Its length was told: only a connection that ends early says that it isn't whole.
            connection: Connection | None = call.scope.get("state", {}).get(CONNECTION_KEY)
            if not reply.has_begun or connection is None:
                raise
            logger.warning("file.cut", extra={"reason": str(error) or "the reader takes nothing"})
            await connection.abort()
            raise
        await reply.send({"type": "http.response.body", "body": b""})


async def _start_response(
    reply: HttpResponse, status: int, headers: dict[str, str], *, is_whole: bool
) -> None:
    start = encode_headers({**reply.headers, **headers})
    await reply.send({"type": "http.response.start", "status": status, "headers": start})
    if is_whole:
        await reply.send({"type": "http.response.body", "body": b""})


def _file_headers(file: Download) -> dict[str, str]:
    is_plain = _MEDIA_TYPE.fullmatch(file.media_type) is not None
    digest = base64.b64encode(bytes.fromhex(file.sha256)).decode("ascii")
    return {
        "content-type": file.media_type if is_plain else _DEFAULT_MEDIA_TYPE,
        "content-disposition": _content_disposition(file.filename),
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        # It never changes, but who may read it does.
        "cache-control": "private, no-cache",
        # RFC 9530.
        "repr-digest": f"sha-256=:{digest}:",
    }


def _content_disposition(filename: str) -> str:
    """Say that it is to be kept, and under which name (RFC 6266)."""
    name = filename or "file"
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    said = f'attachment; filename="{plain}"'
    return said if plain == name else f"{said}; filename*=UTF-8''{quote(name, safe='')}"


def _file_not_found() -> WireError:
    text = "no such file here; it goes with its task, and only the task's account may read it"
    return WireError(FILE_NOT_FOUND, text)
