"""Agent cards of earlier commands, used as HTTP caching (RFC 9111) allows."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from trunkline.core.private_files import read_private_file, write_private_file
from trunkline.errors import ConfigurationError

FOLDER: Final = Path(".cache/a2a-cli/cards")
"""The folder of the cache, below the user's home."""
_MAX_FILES: Final = 100


@dataclass(frozen=True, slots=True)
class CachedDocument:
    """A document, and the time until which it is fresh."""

    url: str
    text: str = field(repr=False)
    validators: Mapping[str, str]
    """The headers of a request that asks whether it has changed."""
    fresh_until: float
    """Seconds since 1970."""

    @property
    def is_fresh(self) -> bool:
        """It may be used without a request."""
        return _now() < self.fresh_until


class CardCache:
    """Documents by their URLs, a file each. A file that can't be used counts as missing."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def find(self, url: str) -> CachedDocument | None:
        """Return the document of a URL."""
        try:
            found = CachedDocument(**json.loads(read_private_file(self._path(url))))
        except (OSError, ValueError, TypeError, ConfigurationError):
            return None
        return found if found.url == url else None

    def store(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Store a document, unless the headers of its response forbid it or it would be no use."""
        names = {"if-none-match": "etag", "if-modified-since": "last-modified"}
        validators = {name: headers[of] for name, of in names.items() if headers.get(of)}
        fresh_until = _fresh_until(headers)
        forbidden = "no-store" in _directives(headers) or headers.get("vary") == "*"
        with suppress(OSError, ConfigurationError, UnicodeDecodeError):
            if forbidden or not (validators or fresh_until > _now()):
                self._path(url).unlink(missing_ok=True)
                return
            document = CachedDocument(url, body.decode(), validators, fresh_until)
            if document == self.find(url):
                return
            write_private_file(self._path(url), json.dumps(asdict(document)).encode())
            self._remove_oldest()

    def _path(self, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()}.json"

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[:-_MAX_FILES]:
            path.unlink(missing_ok=True)


def _fresh_until(headers: Mapping[str, str]) -> float:
    """Return the end of a response's freshness.

    A response with the end 0 has to be validated before each use.
    """
    directives = _directives(headers)
    try:
        if "no-cache" in directives:
            return 0.0
        if "max-age" in directives:
            return _now() + int(directives["max-age"]) - int(headers.get("age", 0))
        return parsedate_to_datetime(headers["expires"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return 0.0


def _directives(headers: Mapping[str, str]) -> dict[str, str]:
    entries = headers.get("cache-control", "").lower().split(",")
    pairs = (entry.partition("=") for entry in entries)
    return {name.strip(): value.strip(' "') for name, _, value in pairs}


def _now() -> float:
    return datetime.now(UTC).timestamp()
