"""Answers GET and HEAD of files, to the account whose task they belong to."""

import asyncio
import base64
import logging
import re
from typing import Final
from urllib.parse import quote

from google.rpc import code_pb2

from trunkline.client import Directory
from trunkline.client.artifacts import ArtifactClient, Download, Reference
from trunkline.errors import ArtifactNotFoundError, TaskNotFoundError, TrunklineError
from trunkline_bridge.errors import Row, WireError
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.caller import Callers
from trunkline_bridge.inbound.exchange import Failure, HttpCall, Opening, Reply
from trunkline_bridge.inbound.files.ranges import (
    Span,
    Unsatisfiable,
    is_known,
    is_other,
    read_range,
)
from trunkline_bridge.inbound.http import OTHER_METHOD, raw, rest_error
from trunkline_bridge.inbound.streaming.presence import CONNECTION, Connection
from trunkline_bridge.projection.links import PATH as FILES_PATH
from trunkline_bridge.projection.links import reference_at
from trunkline_bridge.wire.json_values import dumps

__all__ = ["FILES_PATH", "Files"]

logger = logging.getLogger(__name__)

NO_FILE: Final = Row(-32001, "ARTIFACT_NOT_FOUND", 404, code_pb2.NOT_FOUND)
NO_RANGE: Final = Row(-32602, "RANGE_NOT_SATISFIABLE", 416, code_pb2.OUT_OF_RANGE)
OTHER_FILE: Final = Row(-32602, "PRECONDITION_FAILED", 412, code_pb2.FAILED_PRECONDITION)

_METHODS: Final = "GET, HEAD, OPTIONS"
# A reader that takes nothing for so long gives its place to others; it may come back by Range.
_STALLED_S: Final = 60.0
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?[\w.+-]+=[\w.+-]+)*", re.ASCII)
_OTHER_TYPE: Final = "application/octet-stream"
_SHOWN_LENGTH: Final = 100


class Files:
    """`GET /artifacts/TASK/FILE/NAME`: a binding beside those of A2A.

    What a file is called and says it is comes from agents and callers: browsers are told to keep
    it, and neither to show nor to run it.
    """

    def __init__(self, directory: Directory, callers: Callers, *, patience_s: float) -> None:
        self._artifacts = ArtifactClient(directory, patience_s=patience_s)
        self._callers = callers

    async def answer(self, call: HttpCall, reply: Reply) -> Opening | None:
        """Answer a call."""
        method = call.scope["method"]
        if method not in ("GET", "HEAD"):
            reply.headers["allow"] = _METHODS
            if method == "OPTIONS":
                await reply.send_nothing()
                return None
            text = f"{method[:_SHOWN_LENGTH]} is not served here; send {_METHODS}"
            raise WireError(OTHER_METHOD, text)
        identity = await self._callers.identify(call.headers)
        reference = reference_at(call.scope["path"].removeprefix(FILES_PATH))
        if reference is None:
            raise _missing()
        tracing.name_request("GetArtifact", "")
        try:
            # What it is decides which of it is read.
            async with self._artifacts.open(reference, account=identity.account) as file:
                known = file
            await self._send(call, reply, reference, known, identity.account)
        except (TaskNotFoundError, ArtifactNotFoundError):
            if reply.has_begun:
                raise
            raise _missing() from None
        return None

    def failure(self, error: WireError, _reply: Reply) -> Failure:
        """Return an error, under its own status."""
        return Failure(error.row.http_status, dumps(rest_error(error)).encode())

    async def _send(
        self,
        call: HttpCall,
        reply: Reply,
        reference: Reference,
        file: Download,
        account: str,
    ) -> None:
        etag = f'"{file.sha256}"'
        get = call.headers.get
        reply.headers |= {"etag": etag, "accept-ranges": "bytes"}
        # In the order of RFC 9110, 13.2.2. Without a date of its own, none that is given counts.
        if is_other(get(b"if-match"), etag=etag):
            raise WireError(OTHER_FILE, f"this file is {etag}; none that If-Match has")
        if is_known(get(b"if-none-match"), etag=etag):
            await _begin(reply, 304, {}, is_whole=True)
            return
        size = file.size_bytes
        # Ranges are GET's alone (14.2).
        asked = get(b"range") if call.scope["method"] == "GET" else None
        try:
            span = read_range(asked, get(b"if-range"), etag=etag, size=size)
        except Unsatisfiable:
            reply.headers["content-range"] = f"bytes */{size}"
            text = f"the file has {size} bytes; ask for some of these"
            raise WireError(NO_RANGE, text) from None
        headers = _describe(file)
        status, (begin, end) = 200, Span(0, size)
        if span is not None:
            status, (begin, end) = 206, span
            headers["content-range"] = f"bytes {begin}-{end - 1}/{size}"
        headers["content-length"] = str(end - begin)
        if call.scope["method"] == "HEAD" or begin == end:
            await _begin(reply, status, headers, is_whole=True)
            return
        try:
            async with self._artifacts.open(
                reference, account=account, offset=begin, length=end - begin
            ) as download:
                await _begin(reply, status, headers, is_whole=False)
                async for chunk in download:
                    piece = {"type": "http.response.body", "body": chunk, "more_body": True}
                    async with asyncio.timeout(_STALLED_S):
                        await reply.send(piece)
        except (TrunklineError, TimeoutError) as error:
            # Its length was told: only a connection that ends early says that it isn't whole.
            connection: Connection | None = call.scope.get("state", {}).get(CONNECTION)
            if not reply.has_begun or connection is None:
                raise
            logger.warning("file.cut", extra={"reason": str(error) or "the reader takes nothing"})
            await connection.cut()
            raise
        await reply.send({"type": "http.response.body", "body": b""})


async def _begin(reply: Reply, status: int, headers: dict[str, str], *, is_whole: bool) -> None:
    start = raw({**reply.headers, **headers})
    await reply.send({"type": "http.response.start", "status": status, "headers": start})
    if is_whole:
        await reply.send({"type": "http.response.body", "body": b""})


def _describe(file: Download) -> dict[str, str]:
    is_plain = _MEDIA_TYPE.fullmatch(file.media_type) is not None
    digest = base64.b64encode(bytes.fromhex(file.sha256)).decode("ascii")
    return {
        "content-type": file.media_type if is_plain else _OTHER_TYPE,
        "content-disposition": _disposition(file.filename),
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        # It never changes, but who may read it does.
        "cache-control": "private, no-cache",
        # RFC 9530.
        "repr-digest": f"sha-256=:{digest}:",
    }


def _disposition(filename: str) -> str:
    """Say that it is to be kept, and under which name (RFC 6266)."""
    name = filename or "file"
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", name)
    said = f'attachment; filename="{plain}"'
    return said if plain == name else f"{said}; filename*=UTF-8''{quote(name, safe='')}"


def _missing() -> WireError:
    text = "no such file here; it goes with its task, and only the task's account may read it"
    return WireError(NO_FILE, text)
