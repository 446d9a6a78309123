"""Circuit breakers: a peer that keeps failing is left alone for a while, so nobody waits for it."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias

from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.settings import Settings

logger = logging.getLogger(__name__)

BreakerState: TypeAlias = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When breakers open and close."""

    failures: int = 5
    """So many failures in a row open one."""
    open_s: float = 60.0
    """How long it stays open, in seconds."""
    successes: int = 2
    """So many successes in a row close it again."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return what a process's settings say."""
        return cls(settings.breaker_failures, settings.breaker_open_s, settings.breaker_successes)


DEFAULT_SETTINGS: Final = BreakerSettings()


class Breaker:
    """Watches the calls of one hop: closed while they work, open after `failures` in a row.

    Open, every call is refused at once. After `open_s` it is half-open: one call at a time goes
    through, as a probe; `successes` of them close it, a failure opens it again. A call is told by
    `check` and then one of `on_success`, `on_failure` and `on_leave`, or by `guard`, which does
    both. Not for more than one thread.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = DEFAULT_SETTINGS.failures,
        open_s: float = DEFAULT_SETTINGS.open_s,
        successes: int = DEFAULT_SETTINGS.successes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name` is what errors and log lines call the peer; `clock` gives seconds."""
        self.name = name
        self._failures_to_open = failures
        self._successes_to_close = successes
        self._open_s = open_s
        self._clock = clock
        self._state: BreakerState = "closed"
        # In a row: failures while closed, successes while half-open.
        self._count = 0
        self._problem = ""
        self._retry_at = 0.0
        # While half-open: when another probe may go although the last has not been heard of.
        self._probe_until = -math.inf

    @property
    def state(self) -> BreakerState:
        """The state at this moment."""
        if self._state == "open" and self._clock() >= self._retry_at:
            return "half-open"
        return self._state

    @property
    def retry_in_s(self) -> float:
        """Seconds until a call may go through; 0 unless it is open."""
        return max(0.0, self._retry_at - self._clock()) if self._state == "open" else 0.0

    @property
    def problem(self) -> str:
        """Why calls are refused, and when one is let through; empty while it is closed."""
        match self.state:
            case "closed":
                return ""
            case "open":
                wait_s = math.ceil(self.retry_in_s)
                return f"{self._history()}; it is tried again in {wait_s} s"
            case _:
                return f"{self._history()}; it is being tried again, one call at a time"

    def check(self) -> None:
        """Let a call through, or don't.

        Raises:
            PeerUnavailableError: it is open, or half-open with a probe under way. The error says
                what went wrong last, and when the peer is tried again.
        """
        if self._state == "closed":
            return
        now = self._clock()
        if self._state == "open" and now >= self._retry_at:
            self._half_open()
        if self._state == "open" or now < self._probe_until:
            raise PeerUnavailableError(self.name, self.problem)
        # A probe whose outcome nobody tells must not keep the peer away for good.
        self._probe_until = now + self._open_s

    def on_success(self) -> None:
        """A call went well: the peer answered, be it with a refusal."""
        if self._state == "closed":
            self._count = 0
        elif self.state == "half-open":
            self._half_open()
            self._probe_until = -math.inf
            self._count += 1
            if self._count >= self._successes_to_close:
                self._state, self._count, self._problem = "closed", 0, ""
                logger.info("breaker.closed", extra={"peer": self.name})

    def on_failure(self, problem: str = "") -> None:
        """A call failed because of the peer; `problem` says how, in a line."""
        if self.state == "open":
            # A call of before; how long the peer rests is settled.
            return
        self._problem = problem or self._problem
        if self._state == "closed":
            self._count += 1
            if self._count < self._failures_to_open:
                return
        # A peer that stays down is no news.
        level = logging.WARNING if self._state == "closed" else logging.INFO
        self._state, self._count = "open", 0
        self._retry_at = self._clock() + self._open_s
        self._probe_until = -math.inf
        extra = {"peer": self.name, "open_s": self._open_s}
        logger.log(level, "breaker.opened", extra=extra)

    def on_abandon(self) -> None:
        """A call ended without telling anything about the peer: its caller went away."""
        self._probe_until = -math.inf

    def allow_probe(self) -> None:
        """The peer was seen to live, by another way: the next call goes through, as a probe."""
        if self._state == "open":
            self._half_open()

    @contextmanager
    def guard(self, *, has_deadline: bool = False) -> Iterator[None]:
        """Make the block one call, whose end is told by what it raises.

        PeerUnavailable, PeerTimeout and PeerProtocol errors that name this peer are failures. An
        error that names another peer was passed on by this one, which is well; so is one that
        refuses a request. Cancellation and foreign exceptions tell nothing, and neither do
        timeouts of a call that `has_deadline`, its caller's own.

        Raises:
            PeerUnavailableError: as `check`.
        """
        self.check()
        try:
            yield
        except TrunklineError as error:
            if has_deadline and isinstance(error, PeerTimeoutError):
                self.on_abandon()
            elif is_peer_failure(error, of=self.name):
                self.on_failure(error.metadata()["problem"])
            else:
                self.on_success()
            raise
        except BaseException:
            self.on_abandon()
            raise
        self.on_success()

    def _half_open(self) -> None:
        if self._state == "half-open":
            return
        self._state, self._count = "half-open", 0
        self._probe_until = -math.inf
        logger.info("breaker.half_open", extra={"peer": self.name})

    def _history(self) -> str:
        last = f", at last: {self._problem}" if self._problem else ""
        return f"it kept failing{last}"


class Breakers:
    """The breakers of all the peers that one process calls, by name."""

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
        """Return the breaker of a peer, closed if it is new."""
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

    def forget(self, name: str) -> None:
        """Drop the breaker of a peer that is gone; repeating it is harmless."""
        self._breakers.pop(name, None)

    def allow_probes(self, names: Iterable[str]) -> None:
        """These peers were seen to live, by another way; those never called are left out."""
        for name in names:
            if name in self._breakers:
                self._breakers[name].allow_probe()

    def states(self) -> Mapping[str, BreakerState]:
        """Return the state of each breaker, by the peer's name."""
        return {name: self._breakers[name].state for name in sorted(self._breakers)}


def is_peer_failure(error: BaseException, *, of: str) -> bool:
    """Whether an error says that the peer `of` is in trouble."""
    if isinstance(error, PeerUnavailableError | PeerTimeoutError | PeerProtocolError):
        return error.peer == of
    return False
