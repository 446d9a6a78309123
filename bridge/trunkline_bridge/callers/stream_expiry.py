"""Ends open streams whose credentials expire or are removed. Their tasks continue."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.caller import Caller, Credential
from trunkline_bridge.callers.permissions import CHALLENGE
from trunkline_bridge.http.in_flight import InFlightRequest, current_request


class StreamExpiry:
    """The open streams of credentials that may expire, with one timer for all of them.

    It checks each credential as often as the file of API keys is read again, so a stream ends
    within that interval. Streams without credentials are not watched.
    """

    def __init__(self) -> None:
        # The number of streams of each request: a WebSocket may have several.
        self._requests: dict[Credential, Counter[InFlightRequest]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[None]:
        """End the current request with UNAUTHENTICATED if the credential is refused in the block.

        The request has to be tracked by `InFlightRequests`.
        """
        request, credential = current_request(), caller.credential
        if credential is None or request is None:
            yield
            return
        self._requests.setdefault(credential, Counter())[request] += 1
        if self._timer is None:
            self._schedule()
        try:
            yield
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
