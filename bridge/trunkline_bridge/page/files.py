"""The files of the page, out of this package: `/ui/` and all below `/ui/assets`."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from trunkline_bridge.edge.http import ROUTE_NOT_FOUND, error_response
from trunkline_bridge.errors import WireError

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


class PageFile(NamedTuple):
    """A file with its headers."""

    content: bytes
    content_type: str
    etag: str


class PageFiles:
    """Serves the files. They are read once, since they are few and small."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        """All responses have `headers`."""
        self._headers = {"cache-control": "no-cache", **headers}
        self._files = dict(_read_files(files("trunkline_bridge.page") / "static", ""))

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
        headers = {**self._headers, "etag": found.etag}
        known = request.headers.get("if-none-match", "").replace("W/", "").split(",")
        if found.etag in map(str.strip, known):
            return Response(status_code=304, headers=headers)
        return Response(found.content, headers=headers, media_type=found.content_type)


def _read_files(folder: Traversable, prefix: str) -> "list[tuple[str, PageFile]]":
    found: list[tuple[str, PageFile]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _read_files(entry, f"{name}/")
            continue
        content_type = _TYPES.get(entry.name.rpartition(".")[2])
        if content_type is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found.append((name, PageFile(content, content_type, etag)))
    return found
