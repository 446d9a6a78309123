"""Circuit breakers: calls to a peer that keeps failing are refused for a while."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from trunkline.core.settings import DEFAULTS, Settings
from trunkline.errors import (
    PeerCircuitOpenError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.observe.metrics import instruments
from trunkline.observe.metrics.kinds import Reading

logger = logging.getLogger(__name__)

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Thresholds of circuit breakers."""

    failures: int = DEFAULTS.breaker_failures
    """The number of failures in a row that opens a breaker."""
    open_s: float = DEFAULTS.breaker_open_s
    """The time that a breaker stays open, in seconds."""
    successes: int = DEFAULTS.breaker_successes
    """The number of successes in a row that closes it again."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the thresholds of a process's settings."""
        return cls(settings.breaker_failures, settings.breaker_open_s, settings.breaker_successes)


DEFAULT_SETTINGS: Final = BreakerSettings()
EARLY_PROBE_S: Final = 1.0
"""The first pause, in seconds, of a breaker around a peer that we learn of only by calling it."""

# A failure is recent for so long. Then one more call finds out whether the peer is back.
_LATELY_S: Final = 5.0


class Breaker:
    """The circuit breaker of one peer: closed at first, open after `failures` in a row.

    An open breaker refuses every call at once. After a pause it is half-open: it lets one call at
    a time through as a probe. `successes` of these close it, and a failure opens it again. Pauses
    double from `first_open_s` up to `open_s`, until the breaker is closed. Report a call by
    `check` and then one of `on_success`, `on_failure` and `on_abandon`; `guard` does both. Not
    thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = DEFAULTS.breaker_failures,
        open_s: float = DEFAULTS.breaker_open_s,
        first_open_s: float | None = None,
        successes: int = DEFAULTS.breaker_successes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is the peer in errors and log lines. `clock` returns seconds.

        Without `first_open_s`, every pause is `open_s`.
        """
        self.name = name
        self._failures_to_open = failures
        self._successes_to_close = successes
        self._open_s = open_s
        self._first_pause_s = open_s if first_open_s is None else min(first_open_s, open_s)
        self._pause_s = self._first_pause_s
        self._clock = clock
        self._state: BreakerState = "closed"
        # The current streak: failures while closed, successes while half-open.
        self._count = 0
        self._problem = ""
        self._retry_at = 0.0
        # The time of the last failure, unless a success followed it.
        self._failed_at = -math.inf
        # While half-open: the time after which a probe without a result no longer blocks the next.
        self._probe_until = -math.inf
        instruments.BREAKERS.watch(self, Breaker._read_state)
        instruments.BREAKERS_OPENED.begin(name)

    @property
    def state(self) -> BreakerState:
        """The current state."""
        if self._state == "open" and self._clock() >= self._retry_at:
            return "half-open"
        return self._state

    @property
    def has_failed_lately(self) -> bool:
        """Whether calls are refused, or the last one failed a few seconds ago.

        Callers with a choice of peers choose another one, before this breaker is open.
        """
        return self.state == "open" or self._clock() < self._failed_at + _LATELY_S

    @property
    def retry_in_s(self) -> float:
        """Seconds until a call is let through; 0 unless the breaker is open."""
        return max(0.0, self._retry_at - self._clock()) if self._state == "open" else 0.0

    @property
    def problem(self) -> str:
        """The reason why calls are refused, and the time of the next try. Empty while closed."""
        match self.state:
            case "closed":
                return ""
            case "open":
                wait_s = math.ceil(self.retry_in_s)
                return f"{self._describe_failures()}; it is tried again in {wait_s} s"
            case _:
                return f"{self._describe_failures()}; it is being tried again, one call at a time"

    def check(self) -> None:
        """Let a call through or refuse it.

        Raises:
            PeerCircuitOpenError: the breaker is open, or half-open with a probe under way. The
                error has the last problem and the time of the next try.
        """
        if self._state == "closed":
            return
        now = self._clock()
        if self._state == "open" and now >= self._retry_at:
            self._half_open()
        if self._state == "open" or now < self._probe_until:
            # A probe usually ends soon.
            wait_s = max(1, math.ceil(self.retry_in_s))
            raise PeerCircuitOpenError(self.name, self.problem, str(wait_s))
        # A probe that is never reported must not block the peer forever.
        self._probe_until = now + self._open_s

    def on_success(self) -> None:
        """Record a call that the peer answered, even if it refused the request."""
        self._failed_at = -math.inf
        if self._state == "closed":
            self._count = 0
        elif self.state == "half-open":
            self._half_open()
            self._probe_until = -math.inf
            self._count += 1
            if self._count >= self._successes_to_close:
                self._state, self._count, self._problem = "closed", 0, ""
                self._pause_s = self._first_pause_s
                logger.info("breaker.closed", extra={"peer": self.name})

    def on_failure(self, problem: str = "") -> None:
        """Record a call that failed because of the peer; `problem` describes it in one line."""
        self._failed_at = self._clock()
        if self.state == "open":
            # The call started before the breaker opened and does not prolong the pause.
            return
        self._problem = problem or self._problem
        if self._state == "closed":
            self._count += 1
            if self._count < self._failures_to_open:
                return
        # Only the first opening is a warning.
        level = logging.WARNING if self._state == "closed" else logging.INFO
        self._state, self._count = "open", 0
        pause_s = self._pause_s
        self._pause_s = min(self._open_s, 2 * pause_s)
        self._retry_at = self._clock() + pause_s
        self._probe_until = -math.inf
        instruments.BREAKERS_OPENED.add(1, self.name)
        extra = {"peer": self.name, "open_s": pause_s}
        logger.log(level, "breaker.opened", extra=extra)

    def on_abandon(self) -> None:
        """Record a call that says nothing about the peer, because its caller ended it."""
        self._probe_until = -math.inf

    def allow_probe(self) -> None:
        """Let the next call through as a probe, because the peer was seen alive in another way."""
        if self._state == "open":
            self._half_open()

    def retire(self) -> None:
        """End its series in the metrics, because its peer is gone or is no longer called.

        Calls under way may still report to it.
        """
        # Nobody would close it. It may be part of a cycle, which lives until the next collection.
        instruments.BREAKERS.forget(self)

    @contextmanager
    def guard(
        self,
        *,
        has_deadline: bool = False,
        is_answer: Callable[[TrunklineError], bool] = lambda _: False,
    ) -> Iterator[None]:
        """Report the block as one call, whose result is what it raises.

        PeerUnavailableError, PeerTimeoutError and PeerProtocolError that name this peer are
        failures, except those for which `is_answer` is true. Errors that name another peer, and
        refused requests, are successes: this peer answered. Cancellation and other exceptions say
        nothing about the peer. Nor do timeouts if the call `has_deadline` from its caller.

        Raises:
            PeerCircuitOpenError: see `check`.
        """
        self.check()
        try:
            yield
        except TrunklineError as error:
            if has_deadline and isinstance(error, PeerTimeoutError):
                self.on_abandon()
            elif is_peer_failure(error, peer=self.name) and not is_answer(error):
                self.on_failure(error.metadata()["problem"])
            else:
                self.on_success()
            raise
        except BaseException:
            self.on_abandon()
            raise
        self.on_success()

    def _read_state(self) -> Sequence[Reading]:
        """Return the state for metrics."""
        return [((self.name, self.state), 1)]

    def _half_open(self) -> None:
        if self._state == "half-open":
            return
        self._state, self._count = "half-open", 0
        self._probe_until = -math.inf
        logger.info("breaker.half_open", extra={"peer": self.name})

    def _describe_failures(self) -> str:
        suffix = f", at last: {self._problem}" if self._problem else ""
        return f"it kept failing{suffix}"


class Breakers:
    """The breakers of all peers that one process calls, by name."""

    def __init__(
        self,
        settings: BreakerSettings = DEFAULT_SETTINGS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._breakers: dict[str, Breaker] = {}

    def get(self, name: str) -> Breaker:
        """Return the breaker of a peer; a new one is closed."""
        breaker = self._breakers.get(name)
        if breaker is None:
            breaker = self._breakers[name] = Breaker(
                name,
                failures=self._settings.failures,
                open_s=self._settings.open_s,
                successes=self._settings.successes,
                clock=self._clock,
            )
        return breaker

    def is_open(self, name: str) -> bool:
        """Return whether calls of a peer are refused."""
        breaker = self._breakers.get(name)
        return breaker is not None and breaker.state == "open"

    def forget(self, name: str) -> None:
        """Drop the breaker of a peer that is gone, if there is one."""
        breaker = self._breakers.pop(name, None)
        if breaker is not None:
            breaker.retire()

    def clear(self) -> None:
        """Drop all breakers, because this process calls none of their peers any more."""
        for name in tuple(self._breakers):
            self.forget(name)

    def allow_probes(self, names: Iterable[str]) -> None:
        """Let the next call to each of these peers through, because they were seen alive."""
        for name in names:
            if name in self._breakers:
                self._breakers[name].allow_probe()

    def is_failing(self, name: str) -> bool:
        """Return whether calls of a peer are refused, or the last one failed a moment ago."""
        breaker = self._breakers.get(name)
        return breaker is not None and breaker.has_failed_lately

    def states(self) -> Mapping[str, BreakerState]:
        """Return the state of each breaker by its peer's name."""
        return {name: self._breakers[name].state for name in sorted(self._breakers)}


def is_peer_failure(error: BaseException, *, peer: str) -> bool:
    """Return True if an error is a failure of `peer`, and not of another one."""
    if isinstance(error, PeerUnavailableError | PeerTimeoutError | PeerProtocolError):
        return error.peer == peer
    return False
