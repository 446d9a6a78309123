"""Serves files of tasks by GET and HEAD, whole or in ranges (RFC 9110, 13 and 14)."""

import asyncio
import base64
import logging
import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import quote

from google.rpc import code_pb2

from trunkline.client import Directory
from trunkline.client.artifacts import ArtifactClient, Download, Reference
from trunkline.errors import ArtifactNotFoundError, TaskNotFoundError, TrunklineError
from trunkline_bridge.bindings.http_handler import HttpRequest, HttpResponse, Response
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.caller import CallerFactory
from trunkline_bridge.edge.http import METHOD_NOT_ALLOWED, ResponseSender, rest_error_body
from trunkline_bridge.edge.in_flight import Connection, find_connection
from trunkline_bridge.errors import ErrorKind, WireError
from trunkline_bridge.projection.links import find_reference_at_path
from trunkline_bridge.streams.sse import Heartbeats
from trunkline_bridge.versions.json_values import dumps

_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class ByteRange(NamedTuple):
    """A range of bytes, from `begin` up to but excluding `end`."""

    begin: int
    end: int


class UnsatisfiableRangeError(Exception):
    """The range begins behind the end of the file."""


def parse_range(
    given: str | None, condition: str | None, *, etag: str, size: int
) -> ByteRange | None:
    """Return the bytes that `Range` requests, if `If-Range` holds; None: the whole file.

    Several ranges, other units and malformed ranges are ignored.

    Raises:
        UnsatisfiableRangeError: the range begins behind the end of the file.
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
    """Return whether `If-Match` lacks the tag of the file, by strong comparison."""
    if given is None:
        return False
    tags = {tag.strip() for tag in given.split(",")}
    return "*" not in tags and etag not in tags


def matches_if_none_match(given: str | None, *, etag: str) -> bool:
    """Return whether `If-None-Match` has the tag of the file, by weak comparison."""
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
# Time for a client to read a piece. A slower one is disconnected and may resume by Range.
_WRITE_TIMEOUT_S: Final = 60.0
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)
_DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
_SHOWN_LENGTH: Final = 100


class FileBinding:
    """Files of tasks at `/artifacts/TASK/FILE/NAME`.

    Agents and callers choose the name and the media type of a file. The response headers therefore
    make browsers save it instead of displaying or running it.
    """

    methods: tuple[str, ...] = ()
    method_hint = ""

    def __init__(self, directory: Directory, callers: CallerFactory, *, patience_s: float) -> None:
        """`patience_s` is how long to wait for the host of a file."""
        self.artifacts = ArtifactClient(directory, patience_s=patience_s)
        self.callers = callers

    def new_call(self) -> "FileCall":
        """Return an object for one request."""
        return FileCall(self)


class FileCall:
    """One request for a file."""

    __slots__ = ("_binding", "_headers")

    def __init__(self, binding: FileBinding) -> None:
        self._binding = binding
        self._headers: dict[str, str] = {}

    async def respond(self, request: HttpRequest) -> Response:
        """Return the response."""
        scope = request.scope
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            self._headers = {"allow": _ALLOWED_METHODS}
            if method == "OPTIONS":
                return HttpResponse(status=204, content_type="", headers=self._headers)
            text = f"{method[:_SHOWN_LENGTH]} is not served here; send {_ALLOWED_METHODS}"
            raise WireError(METHOD_NOT_ALLOWED, text)
        identity = await self._binding.callers.authenticate(request.headers)
        reference = find_reference_at_path(scope["path_params"]["path"])
        if reference is None:
            raise _file_not_found()
        tracing.name_request_span("GetArtifact", "")
        try:
            # The response depends on the file's size and digest, which come with any read.
            async with self._binding.artifacts.open(reference, account=identity.account) as file:
                metadata = file
        except (TaskNotFoundError, ArtifactNotFoundError):
            raise _file_not_found() from None
        return self._build_response(request, reference, metadata, identity.account)

    def error_response(self, error: WireError) -> HttpResponse:
        """Return an error under its HTTP status."""
        body = dumps(rest_error_body(error)).encode()
        return HttpResponse(body, error.kind.http_status, headers=self._headers)

    def _build_response(
        self, request: HttpRequest, reference: Reference, file: Download, account: str
    ) -> Response:
        get = request.headers.get
        is_head = request.scope["method"] == "HEAD"
        etag = f'"{file.sha256}"'
        self._headers = {"etag": etag, "accept-ranges": "bytes"}
        # The order of RFC 9110, 13.2.2. Files have no modification date, so date conditions are
        # ignored.
        if fails_if_match(get(b"if-match"), etag=etag):
            raise WireError(PRECONDITION_FAILED, f"this file is {etag}; none that If-Match has")
        if matches_if_none_match(get(b"if-none-match"), etag=etag):
            return HttpResponse(status=304, content_type="", headers=self._headers)
        size = file.size_bytes
        # Only GET has ranges (RFC 9110, 14.2).
        range_header = None if is_head else get(b"range")
        try:
            part = parse_range(range_header, get(b"if-range"), etag=etag, size=size)
        except UnsatisfiableRangeError:
            self._headers["content-range"] = f"bytes */{size}"
            text = f"the file has {size} bytes; ask for some of these"
            raise WireError(RANGE_NOT_SATISFIABLE, text) from None
        headers = {**self._headers, **_file_headers(file)}
        status, (begin, end) = 200, ByteRange(0, size)
        if part is not None:
            status, (begin, end) = 206, part
            headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
        headers["content-length"] = str(end - begin)
        if is_head or begin == end:
            return HttpResponse(status=status, content_type="", headers=headers)
        content = self._binding.artifacts.open(
            reference, account=account, offset=begin, length=end - begin
        )
        return _FileResponse(status, headers, content, find_connection(request.scope))


@dataclass(slots=True)
class _FileResponse:
    """The bytes of a file."""

    status: int
    headers: dict[str, str]
    content: AbstractAsyncContextManager[Download]
    connection: Connection | None

    async def send(self, sender: ResponseSender, _heartbeats: Heartbeats) -> None:
        """Send all of it."""
        try:
            async with self.content as chunks:
                await sender.start(self.status, self.headers)
                async for chunk in chunks:
                    async with asyncio.timeout(_WRITE_TIMEOUT_S):
                        await sender.write(chunk)
        except (TaskNotFoundError, ArtifactNotFoundError) as error:
            if not sender.has_started:
                raise _file_not_found() from None
            await self._abort(error)
            raise
        except (TrunklineError, TimeoutError) as error:
            if sender.has_started:
                await self._abort(error)
            raise
        await sender.finish()

    def last_event(self, _error: WireError) -> bytes | None:
        """Return None: a file can't report errors."""
        return None

    async def _abort(self, error: Exception) -> None:
        """Close the connection: its length was announced, so only that shows the file is cut."""
        if self.connection is not None:
            logger.warning("file.cut", extra={"reason": str(error) or "the reader takes nothing"})
            await self.connection.abort()


def _file_headers(file: Download) -> dict[str, str]:
    is_plain = _MEDIA_TYPE.fullmatch(file.media_type) is not None
    digest = base64.b64encode(bytes.fromhex(file.sha256)).decode("ascii")
    return {
        "content-type": file.media_type if is_plain else _DEFAULT_MEDIA_TYPE,
        "content-disposition": _content_disposition(file.filename),
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        # A file never changes, but the permission to read it may.
        "cache-control": "private, no-cache",
        # RFC 9530.
        "repr-digest": f"sha-256=:{digest}:",
    }


def _content_disposition(filename: str) -> str:
    """Return the header that makes browsers save a file under its name (RFC 6266)."""
    name = filename or "file"
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    header = f'attachment; filename="{plain}"'
    return header if plain == name else f"{header}; filename*=UTF-8''{quote(name, safe='')}"


def _file_not_found() -> WireError:
    text = "no such file here; it is deleted with its task, and only its account may read it"
    return WireError(FILE_NOT_FOUND, text)
