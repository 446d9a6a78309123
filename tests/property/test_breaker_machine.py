"""A breaker behaves like a simple model of its three states."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.errors import PeerUnavailableError
from trunkline.mesh.client import Breaker

_FAILURES, _OPEN_S, _SUCCESSES = 3, 10.0, 2


class BreakerMachine(RuleBasedStateMachine):
    """The model: a state, a run of results, the time it opened, and the time of the last probe."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.breaker = Breaker(
            "peer",
            failures=_FAILURES,
            open_s=_OPEN_S,
            successes=_SUCCESSES,
            clock=lambda: self.now,
        )
        self.state = "closed"
        self.run_length = 0
        self.opened_s = 0.0
        self.probed_s: float | None = None

    def _is_allowed(self) -> bool:
        try:
            self.breaker.check()
        except PeerUnavailableError:
            return False
        return True

    def _enter_state(self, state: str) -> None:
        self.state, self.run_length, self.probed_s = state, 0, None
        if state == "open":
            self.opened_s = self.now

    @rule(by_s=st.sampled_from([0.5, 4.0, _OPEN_S, 25.0]))
    def advance_clock(self, by_s: float) -> None:
        self.now += by_s
        if self.state == "open" and self.now >= self.opened_s + _OPEN_S:
            self._enter_state("half-open")

    @rule()
    def start_call(self) -> None:
        is_allowed = self.state == "closed"
        if self.state == "half-open":
            is_allowed = self.probed_s is None or self.now >= self.probed_s + _OPEN_S
        assert self._is_allowed() == is_allowed
        if is_allowed and self.state == "half-open":
            self.probed_s = self.now

    @rule()
    def succeed(self) -> None:
        self.breaker.on_success()
        if self.state == "closed":
            self.run_length = 0
        elif self.state == "half-open":
            self.probed_s = None
            self.run_length += 1
            if self.run_length == _SUCCESSES:
                self._enter_state("closed")

    @rule(problem=st.sampled_from(["", "no route"]))
    def fail(self, problem: str) -> None:
        self.breaker.on_failure(problem)
        if self.state == "closed":
            self.run_length += 1
        if self.state == "half-open" or self.run_length == _FAILURES:
            self._enter_state("open")

    @rule()
    def abandon(self) -> None:
        self.breaker.on_abandon()
        self.probed_s = None

    @precondition(lambda self: self.state != "closed")
    @rule()
    def allow_probe(self) -> None:
        self.breaker.allow_probe()
        if self.state == "open":
            self._enter_state("half-open")

    @invariant()
    def check_state_equals_model(self) -> None:
        assert self.breaker.state == self.state
        remaining_s = self.opened_s + _OPEN_S - self.now if self.state == "open" else 0.0
        assert abs(self.breaker.retry_in_s - remaining_s) < 1e-6
        assert bool(self.breaker.problem) == (self.state != "closed")


TestBreakerMachine = BreakerMachine.TestCase
