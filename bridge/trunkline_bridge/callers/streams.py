"""The open streams of callers, over all interfaces of the bridge."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from trunkline_bridge.callers.account_limits import AccountLimiter
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.stream_expiry import StreamExpiry

_StreamT = TypeVar("_StreamT")


class CallerStreams:
    """Opens the streams of callers, which count for their account and end with their credential."""

    def __init__(self, limiter: AccountLimiter) -> None:
        self._limiter = limiter
        self._expiry = StreamExpiry()

    @asynccontextmanager
    async def guard(
        self, caller: Caller, events: AbstractAsyncContextManager[_StreamT]
    ) -> AsyncIterator[_StreamT]:
        """Open a stream for a caller. Enter it in the request of the caller.

        Entering raises LimitExceededError if the account has too many streams. The request ends
        with UNAUTHENTICATED when the credential is refused.
        """
        with self._limiter.count_stream(caller.account), self._expiry.watch(caller):
            async with events as opened:
                yield opened

    def count_request(self, caller: Caller) -> None:
        """Count a request that arrives within a stream. LimitExceededError: too many."""
        self._limiter.count_request(caller.account)
