"""The files of the page, out of this package: `/ui/` and all below `/ui/assets`."""

import gzip
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from trunkline.a2a_wire.errors import WireError
from trunkline_bridge.http.messages import ROUTE_NOT_FOUND, error_response

INDEX: Final = "index.html"
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "map": "application/json",
    "md": "text/plain; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "webmanifest": "application/manifest+json",
    "woff2": "font/woff2",
}
_COMPRESSED: Final = ("css", "html", "js", "json", "map", "md", "mjs", "svg", "txt", "webmanifest")
# `gzip;q=0` and its variants refuse it.
_ACCEPTS_GZIP: Final = re.compile(
    r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))|,|$)", re.I
)


class PageFile(NamedTuple):
    """A file with its headers."""

    content: bytes
    compressed: bytes
    """The content compressed by gzip, or empty if compression would not make it smaller."""
    content_type: str
    etag: str


class PageFiles:
    """Serves the files. They are read once, since they are few and small."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """All responses have `headers`."""
        self._headers = {"cache-control": "no-cache", **headers}
        self._files = dict(_read_files(files("trunkline_bridge.api.page") / "static", ""))

    async def redirect(self, _request: Request) -> Response:
        """Redirect `/ui` to `/ui/`, also below a prefix that a proxy adds."""
        return Response(status_code=308, headers={**self._headers, "location": "ui/"})

    async def index(self, request: Request) -> Response:
        """Respond with the page."""
        return self._respond(request, INDEX)

    async def asset(self, request: Request) -> Response:
        """Respond with a file below `assets`."""
        return self._respond(request, f"assets/{request.path_params['path']}")

    def _respond(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            text = "the page has no such file; load it again"
            return error_response(WireError(ROUTE_NOT_FOUND, text), headers=self._headers)
        content, etag, headers = found.content, found.etag, dict(self._headers)
        if found.compressed:
            headers["vary"] = "accept-encoding"
            if _ACCEPTS_GZIP.search(request.headers.get("accept-encoding", "")):
                # Another representation has another entity tag (RFC 9110, 8.8.3.3).
                content, etag = found.compressed, f'{etag[:-1]}-gzip"'
                headers["content-encoding"] = "gzip"
        headers["etag"] = etag
        known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
        if etag in map(str.strip, known):
            headers.pop("content-encoding", None)
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=found.content_type)


def _read_files(folder: Traversable, prefix: str) -> "list[tuple[str, PageFile]]":
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _read_files(entry, f"{name}/")
            continue
        suffix = entry.name.rpartition(".")[2]
        content_type = _TYPES.get(suffix)
        if content_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            compressed = gzip.compress(content, mtime=0) if suffix in _COMPRESSED else b""
            if len(compressed) >= len(content):
                compressed = b""
            found.append((name, PageFile(content, compressed, content_type, etag)))
    return found
