"""Whatever calls do, a breaker does what a plain model of its three states says."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.client import Breaker
from trunkline.errors import PeerUnavailableError

_FAILURES, _OPEN_S, _SUCCESSES = 3, 10.0, 2


class BreakerMachine(RuleBasedStateMachine):
    """The model: a state, a count in a row, when it opened, and when the last probe went."""

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
        self.in_a_row = 0
        self.opened = 0.0
        self.probed: float | None = None

    def _is_let_through(self) -> bool:
        try:
            self.breaker.check()
        except PeerUnavailableError:
            return False
        return True

    def _become(self, state: str) -> None:
        self.state, self.in_a_row, self.probed = state, 0, None
        if state == "open":
            self.opened = self.now

    @rule(by_s=st.sampled_from([0.5, 4.0, _OPEN_S, 25.0]))
    def time_passes(self, by_s: float) -> None:
        self.now += by_s
        if self.state == "open" and self.now >= self.opened + _OPEN_S:
            self._become("half-open")

    @rule()
    def a_call_begins(self) -> None:
        may_go = self.state == "closed"
        if self.state == "half-open":
            may_go = self.probed is None or self.now >= self.probed + _OPEN_S
        assert self._is_let_through() == may_go
        if may_go and self.state == "half-open":
            self.probed = self.now

    @rule()
    def a_call_succeeds(self) -> None:
        self.breaker.on_success()
        if self.state == "closed":
            self.in_a_row = 0
        elif self.state == "half-open":
            self.probed = None
            self.in_a_row += 1
            if self.in_a_row == _SUCCESSES:
                self._become("closed")

    @rule(problem=st.sampled_from(["", "no route"]))
    def a_call_fails(self, problem: str) -> None:
        self.breaker.on_failure(problem)
        if self.state == "closed":
            self.in_a_row += 1
        if self.state == "half-open" or self.in_a_row == _FAILURES:
            self._become("open")

    @rule()
    def a_caller_leaves(self) -> None:
        self.breaker.on_abandon()
        self.probed = None

    @precondition(lambda self: self.state != "closed")
    @rule()
    def the_peer_is_seen(self) -> None:
        self.breaker.allow_probe()
        if self.state == "open":
            self._become("half-open")

    @invariant()
    def its_state_is_the_models(self) -> None:
        assert self.breaker.state == self.state
        left_s = self.opened + _OPEN_S - self.now if self.state == "open" else 0.0
        assert abs(self.breaker.retry_in_s - left_s) < 1e-6
        assert bool(self.breaker.problem) == (self.state != "closed")


BreakerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestBreakerMachine = BreakerMachine.TestCase
