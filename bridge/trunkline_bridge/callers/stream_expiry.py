"""Ends open streams whose credentials expire or are removed. Their tasks continue."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.caller import Caller, Credential
from trunkline_bridge.callers.permissions import CHALLENGE
from trunkline_bridge.http.in_flight import InFlightRequest, current_request

_StreamT = TypeVar("_StreamT")


class StreamExpiry:
    """The open streams of credentials that may expire, with one timer for all of them.

    It checks each credential as often as the file of API keys is read again, so a stream ends
    within that interval. Streams without credentials are not watched.
    """

    def __init__(self) -> None:
        # The number of streams of each request: a WebSocket may have several.
        self._requests: dict[Credential, Counter[InFlightRequest]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch_stream(
        self, caller: Caller, events: AbstractAsyncContextManager[_StreamT]
    ) -> AbstractAsyncContextManager[_StreamT]:
        """Return a stream whose request ends with UNAUTHENTICATED when its credential is refused.

        The request that enters it has to be tracked by `InFlightRequests`.
        """
        request = current_request()
        if caller.credential is None or request is None:
            return events
        return self._watch(caller.credential, request, events)

    @asynccontextmanager
    async def _watch(
        self,
        credential: Credential,
        request: InFlightRequest,
        events: AbstractAsyncContextManager[_StreamT],
    ) -> AsyncIterator[_StreamT]:
        self._requests.setdefault(credential, Counter())[request] += 1
        if self._timer is None:
            self._schedule()
        try:
            async with events as opened:
                yield opened
        finally:
            self._remove(credential, request)

    def _remove(self, credential: Credential, request: InFlightRequest) -> None:
        requests = self._requests[credential]
        requests[request] -= 1
        if not requests[request]:
            del requests[request]
        if not requests:
            del self._requests[credential]
        if not self._requests and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(api_keys.RELOAD_INTERVAL_S, self._end_refused)

    def _end_refused(self) -> None:
        self._schedule()
        for credential, requests in self._requests.items():
            if problem := credential.problem():
                challenge = f'{CHALLENGE}, error="invalid_token"'
                for request in requests:
                    request.end(WireError(UNAUTHENTICATED, problem, challenge=challenge))
