"""Tells clients whether the card they hold is still the card (RFC 9110, 8.8 and 13.1)."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime

from starlette.datastructures import Headers

from trunkline_bridge.wire.json_values import Json

# Representations whose age is known; agents times the forms of their cards, and then some.
_KNOWN = 1024


def etag_of(body: Json) -> str:
    """Return a weak tag, without signatures: some are random, and the card is the same under each.

    Clients that hold the same tag hold the same card, whichever bridge gave it to them.
    """
    unsigned = {name: value for name, value in body.items() if name != "signatures"}
    digest = hashlib.sha256(json.dumps(unsigned, sort_keys=True).encode("utf-8")).hexdigest()
    return f'W/"{digest}"'


class Ages:
    """Since when each representation has been as it is, as far as this bridge has seen it."""

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._seen: OrderedDict[str, tuple[str, datetime]] = OrderedDict()

    def since(self, name: str, etag: str) -> datetime:
        """Return the second since which a representation has had this tag."""
        tag, when = self._seen.get(name, ("", datetime.min.replace(tzinfo=UTC)))
        if tag != etag:
            when = self._now().replace(microsecond=0)
        self._seen[name] = (etag, when)
        self._seen.move_to_end(name)
        while len(self._seen) > _KNOWN:
            self._seen.popitem(last=False)
        return when


def is_unchanged(headers: Headers, *, etag: str, modified: datetime) -> bool:
    """Whether a conditional request is answered by 304: by its tag, without one by date."""
    tags = headers.get("if-none-match")
    if tags is not None:
        return _is_among(tags, etag)
    given = headers.get("if-modified-since")
    if given is None:
        return False
    try:
        since = parsedate_to_datetime(given)
    except ValueError:
        return False
    if since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    return modified <= since


def http_date(time: datetime) -> str:
    """Return a time as headers have it."""
    return format_datetime(time, usegmt=True)


def _is_among(tags: str, etag: str) -> bool:
    """Compare weakly, as If-None-Match does (RFC 9110, 13.1.2)."""
    given = {tag.strip().removeprefix("W/") for tag in tags.split(",")}
    return "*" in given or etag.removeprefix("W/") in given
