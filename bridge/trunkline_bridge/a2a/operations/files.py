"""Serves files of tasks by GET and HEAD, whole or in ranges (RFC 9110, 13 and 14)."""

import asyncio
import base64
import logging
import re
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from google.rpc import code_pb2

from trunkline.a2a_wire.errors import ErrorKind, WireError
from trunkline.a2a_wire.json_values import dumps
from trunkline.errors import ArtifactNotFoundError, TaskNotFoundError, TrunklineError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.artifacts import ArtifactClient, Download, Reference
from trunkline.mesh.client.host_queries import fetch_task
from trunkline.observe.audit import OK, Action, AuditLog
from trunkline_bridge.a2a.projection.links import find_reference_at_path
from trunkline_bridge.callers.caller import CallerFactory, CallerIdentity, caller_actor
from trunkline_bridge.callers.permissions import GET_ARTIFACT, UNRESTRICTED
from trunkline_bridge.http import tracing
from trunkline_bridge.http.handler import BufferedResponse, HttpRequest, Response
from trunkline_bridge.http.in_flight import Connection, find_connection
from trunkline_bridge.http.messages import ResponseSender, method_not_allowed_error, rest_error_body
from trunkline_bridge.http.preconditions import (
    ByteRange,
    UnsatisfiableRangeError,
    if_match_fails,
    if_none_match_fails,
    parse_range,
)
from trunkline_bridge.http.sse import Heartbeats

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


class FileBinding:
    """Files of tasks at `/artifacts/TASK/FILE/NAME`.

    Agents and callers choose the name and the media type of a file. The response headers therefore
    make browsers save it instead of displaying or running it.
    """

    methods: tuple[str, ...] = ()
    method_hint = ""

    def __init__(
        self,
        directory: Directory,
        callers: CallerFactory,
        *,
        patience_s: float,
        audit: AuditLog | None = None,
    ) -> None:
        """`patience_s` is the time to wait for an unreachable host of a file."""
        self.audit = audit
        self.artifacts = ArtifactClient(directory, patience_s=patience_s)
        self.callers = callers
        self._directory = directory

    def new_call(self) -> "FileCall":
        """Return an object for one request."""
        return FileCall(self)

    async def authorize(self, identity: CallerIdentity, task_id: str) -> None:
        """Check that a caller may download the files of a task.

        Raises:
            WireError: the credentials do not permit the download or the task's agent.
            TaskNotFoundError: there is no such task.
        """
        if identity.permissions is UNRESTRICTED:
            return
        snapshot = await fetch_task(self._directory, task_id, account=identity.account)
        identity.permissions.check(snapshot.agent, GET_ARTIFACT)


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
                return BufferedResponse(status=204, content_type="", headers=self._headers)
            raise method_not_allowed_error(method, allowed=_ALLOWED_METHODS)
        identity = await self._binding.callers.authenticate(request.headers)
        reference = find_reference_at_path(scope["path_params"]["path"])
        if reference is None:
            raise _file_not_found()
        tracing.name_request_span("GetArtifact", "")
        try:
            await self._binding.authorize(identity, reference.task_id)
            # This download is only for the file's size and digest. The response may need a range.
            async with self._binding.artifacts.open(reference, account=identity.account) as file:
                metadata = file
        except (TaskNotFoundError, ArtifactNotFoundError):
            self._record(request, identity, reference, outcome=FILE_NOT_FOUND.reason)
            raise _file_not_found() from None
        self._record(request, identity, reference)
        return self._build_response(request, reference, metadata, identity.account)

    def _record(
        self,
        request: HttpRequest,
        identity: CallerIdentity,
        reference: Reference,
        outcome: str = OK,
    ) -> None:
        audit = self._binding.audit
        if audit is not None and audit.covers(Action.FILE_GET):
            actor = caller_actor(identity, request.headers.peer.address)
            audit.record(Action.FILE_GET, actor, outcome=outcome, task=reference.task_id)

    def error_response(self, error: WireError) -> BufferedResponse:
        """Return an error under its HTTP status."""
        body = dumps(rest_error_body(error)).encode()
        return BufferedResponse(body, error.kind.http_status, headers=self._headers)

    def _build_response(
        self, request: HttpRequest, reference: Reference, file: Download, account: str
    ) -> Response:
        get = request.headers.get
        is_head = request.scope["method"] == "HEAD"
        etag = f'"{file.sha256}"'
        self._headers = {"etag": etag, "accept-ranges": "bytes"}
        # The order of RFC 9110, 13.2.2. Files have no modification date, so date conditions are
        # ignored.
        if if_match_fails(get(b"if-match"), etag=etag):
            raise WireError(
                PRECONDITION_FAILED, f"the ETag of this file, {etag}, isn't in If-Match"
            )
        if if_none_match_fails(get(b"if-none-match"), etag=etag):
            return BufferedResponse(status=304, content_type="", headers=self._headers)
        size = file.size_bytes
        # Only GET has ranges (RFC 9110, 14.2).
        range_header = None if is_head else get(b"range")
        try:
            part = parse_range(range_header, get(b"if-range"), etag=etag, size=size)
        except UnsatisfiableRangeError:
            self._headers["content-range"] = f"bytes */{size}"
            text = f"the file has only {size} bytes"
            raise WireError(RANGE_NOT_SATISFIABLE, text) from None
        headers = {**self._headers, **_file_headers(file)}
        status, (begin, end) = 200, ByteRange(0, size)
        if part is not None:
            status, (begin, end) = 206, part
            headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
        headers["content-length"] = str(end - begin)
        if is_head or begin == end:
            return BufferedResponse(status=status, content_type="", headers=headers)
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
        """Send the bytes; after the response began, an error closes the connection."""
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
        """Return None, because a file can't contain an error."""
        return None

    async def _abort(self, error: Exception) -> None:
        """Close the connection, which tells the client that the announced length is not reached."""
        if self.connection is not None:
            logger.warning("file.cut", extra={"reason": str(error) or "the client reads nothing"})
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
    text = "no such file; files are deleted with their task, and only its account may read them"
    return WireError(FILE_NOT_FOUND, text)
