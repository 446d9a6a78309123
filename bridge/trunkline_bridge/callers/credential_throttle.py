"""Throttles clients that send wrong credentials.

A wrong credential counts for the address that sent it. An expired one is genuine, so it counts for
its name instead, because many callers may share an address. Requests of a throttled address are
refused before their credentials are checked, except credentials that were right at this address
before, so that a neighbor behind the same proxy can't lock them out. Right credentials are never
refused for the failures of their name.
"""

import hashlib
import ipaddress
import logging
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from time import monotonic
from typing import Final, NoReturn

from trunkline.a2a_wire.errors import OVERLOADED, WireError

logger = logging.getLogger(__name__)

# Limits of memory. The oldest entries are forgotten first.
MAX_CLIENTS: Final = 10_000
MAX_ACCEPTED: Final = 10_000

_MINUTE_S: Final = 60.0
# One customer of a provider usually has a whole IPv6 network of this size.
_IPV6_PREFIX: Final = 64


class CredentialThrottle:
    """Limits the wrong credentials of each client to a number in a minute."""

    def __init__(self, per_minute: int, now: Callable[[], float] = monotonic) -> None:
        """`per_minute` 0 disables it."""
        self._per_minute = per_minute
        self._interval_s = _MINUTE_S / per_minute if per_minute else 0.0
        self._now = now
        # The time at which the failures of a client are forgotten. Each failure moves it on by the
        # interval (generic cell rate algorithm).
        self._failures: OrderedDict[str, float] = OrderedDict()
        self._secret = secrets.token_bytes(32)
        self._accepted: OrderedDict[bytes, None] = OrderedDict()

    def check(self, address: str, credential: str) -> None:
        """Check that an address may try a credential.

        Raises:
            WireError: it has sent too many wrong ones (RESOURCE_EXHAUSTED).
        """
        if not self._failures:
            return
        client = _client_of(address)
        wait_s = self._wait_s(client)
        if wait_s > 0 and self._digest(address, credential) not in self._accepted:
            _refuse(client, wait_s)

    def record_success(self, address: str, credential: str) -> None:
        """Exempt a right credential from the throttle of its address."""
        if not self._per_minute:
            return
        digest = self._digest(address, credential)
        self._accepted[digest] = None
        self._accepted.move_to_end(digest)
        if len(self._accepted) > MAX_ACCEPTED:
            self._accepted.popitem(last=False)

    def record_failure(self, address: str, credential: str, *, name: str = "") -> None:
        """Count a wrong credential for its address, or if it is genuine, for its name.

        Raises:
            WireError: the name has too many (RESOURCE_EXHAUSTED).
        """
        if not self._per_minute:
            return
        # It was right before, and must not pass a throttled address any longer.
        self._accepted.pop(self._digest(address, credential), None)
        client = f"name {name}" if name else _client_of(address)
        wait_s = self._wait_s(client)
        if name and wait_s > 0:
            _refuse(client, wait_s)
        begin = max(self._failures.get(client, 0.0), self._now())
        self._failures[client] = begin + self._interval_s
        self._failures.move_to_end(client)
        if len(self._failures) > MAX_CLIENTS:
            self._failures.popitem(last=False)
        if self._wait_s(client) > 0:
            logger.info("access.throttled", extra={"client": client})

    def _wait_s(self, client: str) -> float:
        """Return the time until a client may fail again; 0 or less: it may now."""
        forgotten_at = self._failures.get(client, 0.0)
        return forgotten_at + self._interval_s - self._now() - _MINUTE_S

    def _digest(self, address: str, credential: str) -> bytes:
        text = f"{address}\n{credential}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, digest_size=16, key=self._secret).digest()


@lru_cache(maxsize=1000)
def _client_of(address: str) -> str:
    """Return the address, or the network of an IPv6 address, as one client."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))


def _refuse(client: str, wait_s: float) -> NoReturn:
    retry_after_s = str(math.ceil(wait_s))
    text = f"too many wrong credentials; try again in {retry_after_s} s"
    logger.info("access.refused", extra={"problem": text, "client": client})
    raise WireError(OVERLOADED, text, retry_after_s=retry_after_s)
