"""The open streams of callers. Their tasks continue when a stream ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TypeVar

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline.core.settings import LimitSettings
from trunkline.errors import LimitExceededError
from trunkline_bridge.callers import api_keys
from trunkline_bridge.callers.caller import Caller, Credential
from trunkline_bridge.callers.permissions import CHALLENGE
from trunkline_bridge.http.in_flight import InFlightRequest, current_request

_EventT = TypeVar("_EventT")


class CallerStreams:
    """The open streams of callers: they count for their account and end with their credential.

    One timer checks the credentials of all streams, as often as the file of API keys is read again,
    so a stream ends within that interval. A stream without a credential ends on its own only.
    """

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        # The number of open streams, by account.
        self._open: Counter[str] = Counter()
        # The number of streams of each request: a WebSocket may have several.
        self._requests: dict[Credential, Counter[InFlightRequest]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def hold(self, caller: Caller) -> Iterator[None]:
        """Count a stream as open within the block, in the request of its caller.

        The request ends with UNAUTHENTICATED when the credential is refused, if `InFlightRequests`
        tracks the request.

        Raises:
            LimitExceededError: the account has too many streams.
        """
        account = caller.account
        limit = self._limits.of_account(account).streams
        if limit is not None and self._open[account] >= limit:
            problem = f"account {account!r} has {limit} open streams, and may have no more"
            raise LimitExceededError(f"{problem}; close one, or wait until one ends", "1")
        self._open[account] += 1
        request, credential = current_request(), caller.credential
        if credential is not None and request is not None:
            self._requests.setdefault(credential, Counter())[request] += 1
            if self._timer is None:
                self._schedule()
        try:
            yield
        finally:
            if credential is not None and request is not None:
                self._remove(credential, request)
            self._open[account] -= 1
            if not self._open[account]:
                del self._open[account]

    @asynccontextmanager
    async def open_singly(
        self, caller: Caller, events: AsyncGenerator[_EventT, None]
    ) -> AsyncIterator[AsyncGenerator[Sequence[_EventT], None]]:
        """Open and `hold` a stream of events that come one by one.

        It is open once there is the first event, so errors before it are raised here.
        """
        with self.hold(caller):
            async with aclosing(events):
                first = await anext(events, None)

                async def read() -> AsyncGenerator[Sequence[_EventT], None]:
                    if first is not None:
                        yield (first,)
                    async for event in events:
                        yield (event,)

                async with aclosing(read()) as opened:
                    yield opened

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
