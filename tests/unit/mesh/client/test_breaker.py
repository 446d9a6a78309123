import asyncio
import gc
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest

from harness.journal.manual_clock import ManualClock
from harness.logs import find_logged
from harness.remote.measurements import Measurements, measuring
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.core.settings import ParticipantSettings
from trunkline.errors import (
    PeerCircuitOpenError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.mesh.client import Breaker, Breakers, BreakerSettings, ChannelPool
from trunkline_bridge.api.participants.participant import Participant, open_participant


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """Breakers of earlier tests leave the metrics before the tests of this module, or after."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def breaker(clock: ManualClock) -> Breaker:
    return Breaker("10.0.0.7:50051", clock=clock)


def get_state(breaker: Breaker) -> str:
    return breaker.state


def fail(breaker: Breaker, error: TrunklineError) -> None:
    with pytest.raises(type(error)), breaker.guard():
        raise error


def open_breaker(breaker: Breaker) -> None:
    for _ in range(5):
        fail(breaker, PeerUnavailableError(breaker.name, "connection refused"))
    assert get_state(breaker) == "open"


@pytest.mark.parametrize(
    "error",
    [
        PeerUnavailableError("10.0.0.7:50051", "connection refused"),
        PeerTimeoutError("10.0.0.7:50051", "no answer to a ping"),
        PeerProtocolError("10.0.0.7:50051", "nonsense"),
    ],
    ids=lambda error: error.reason,
)
def test_five_failures_in_a_row_open_the_breaker(breaker: Breaker, error: TrunklineError) -> None:
    for _ in range(4):
        fail(breaker, error)
    assert get_state(breaker) == "closed"
    fail(breaker, error)
    assert get_state(breaker) == "open"


@pytest.mark.parametrize(
    "error",
    [TaskNotFoundError("j-1"), PeerUnavailableError("another", "connection refused")],
    ids=["a refused request", "an error that the peer passed on"],
)
def test_an_error_answer_of_the_peer_is_no_failure(breaker: Breaker, error: TrunklineError) -> None:
    for _ in range(20):
        fail(breaker, error)
    assert get_state(breaker) == "closed"


def test_an_exceeded_deadline_of_the_caller_is_no_failure(breaker: Breaker) -> None:
    for _ in range(20):
        with pytest.raises(PeerTimeoutError), breaker.guard(has_deadline=True):
            raise PeerTimeoutError(breaker.name, "Deadline Exceeded")
    assert breaker.state == "closed"


def test_an_open_breaker_reports_the_problem_and_the_next_attempt(
    breaker: Breaker, clock: ManualClock
) -> None:
    open_breaker(breaker)
    clock.now += 17.5
    with pytest.raises(PeerCircuitOpenError) as caught:
        breaker.check()
    assert str(caught.value) == (
        "10.0.0.7:50051 can't be reached: "
        "it kept failing, at last: connection refused; it is tried again in 43 s"
    )
    assert caught.value.retry_after_s == "43"
    clock.now += 60
    breaker.check()
    with pytest.raises(PeerCircuitOpenError, match="one call at a time") as caught:
        breaker.check()
    assert caught.value.retry_after_s == "1"


def test_pauses_double_from_an_early_probe_until_the_breaker_is_closed(clock: ManualClock) -> None:
    breaker = Breaker("far", failures=1, open_s=5, first_open_s=1, successes=1, clock=clock)
    refused = PeerUnavailableError("far", "connection refused")
    for _ in range(2):
        pauses = []
        for _ in range(5):
            fail(breaker, refused)
            pauses.append(breaker.retry_in_s)
            clock.now += breaker.retry_in_s
        assert pauses == [1, 2, 4, 5, 5]
        with breaker.guard():
            pass
        assert get_state(breaker) == "closed"


def test_a_cancelled_probe_allows_the_next_one(breaker: Breaker, clock: ManualClock) -> None:
    open_breaker(breaker)
    clock.now += 60
    with pytest.raises(asyncio.CancelledError), breaker.guard():
        raise asyncio.CancelledError
    with breaker.guard():
        pass
    assert get_state(breaker) == "half-open"


def test_each_change_of_state_is_one_log_line(
    breaker: Breaker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="trunkline.mesh.client.breaker")
    open_breaker(breaker)
    for _ in range(3):
        with pytest.raises(PeerUnavailableError):
            breaker.check()
    clock.now += 60
    for _ in range(2):
        with breaker.guard():
            pass
    changes = [(record.message, record.__dict__["peer"]) for record in find_logged(caplog)]
    name = breaker.name
    assert changes == [
        ("breaker.opened", name),
        ("breaker.half_open", name),
        ("breaker.closed", name),
    ]


def test_breakers_are_separate_by_name_and_report_their_states() -> None:
    breakers = Breakers(BreakerSettings(failures=1))
    breakers.get("b").on_failure("it hangs")
    breakers.get("a").check()
    assert breakers.get("b") is breakers.get("b")
    assert breakers.states() == {"a": "closed", "b": "open"}
    breakers.allow_probes(["a", "b", "c"])
    assert breakers.states() == {"a": "closed", "b": "half-open"}
    breakers.forget("b")
    breakers.forget("b")
    assert breakers.states() == {"a": "closed"}


def count_breakers(measured: Measurements) -> float:
    """Return by how many breakers the metrics have more than before."""
    return sum(measured.of("trunkline.breakers").values())


def test_a_forgotten_breaker_leaves_the_metrics_though_somebody_has_it(clock: ManualClock) -> None:
    held = []
    with measuring() as measured:
        for state, forgets_all in itertools.product(("closed", "open", "half-open"), (False, True)):
            breakers = Breakers(BreakerSettings(failures=1, open_s=1), clock=clock)
            held.append(breakers.get("gone"))
            if state != "closed":
                held[-1].on_failure("it is dead")
            if state == "half-open":
                clock.now += 1
            assert get_state(held[-1]) == state
            assert count_breakers(measured) == 1
            if forgets_all:
                breakers.clear()
            else:
                breakers.forget("gone")
            assert count_breakers(measured) == 0, (state, forgets_all)


def test_a_new_breaker_of_a_forgotten_name_is_measured_alone() -> None:
    with measuring() as measured:
        breakers = Breakers(BreakerSettings(failures=1))
        former = breakers.get("back")
        former.on_failure("it is dead")
        breakers.forget("back")
        # A call that was under way ends.
        former.on_failure("it is dead")
        assert get_state(breakers.get("back")) == "closed"
        ((values, number),) = measured.of("trunkline.breakers").items()
    assert (values[1], number) == ("closed", 1)


async def test_breakers_of_a_pool_leave_the_metrics_with_their_channels() -> None:
    with measuring() as measured:
        async with ChannelPool() as channels:
            held = [channels.get(f"unix:/nobody/{number}") for number in range(3)]
            assert count_breakers(measured) == 3
            channels.retire(held[0].address)
            channels.retire(held[0].address)
            assert count_breakers(measured) == 2
        assert count_breakers(measured) == 0
        assert get_state(held[2].breaker) == "closed"


def open_room(url: str) -> AbstractAsyncContextManager[Participant]:
    settings = ParticipantSettings(url=url)
    return open_participant("room", settings, BreakerSettings(), lambda: None)


@pytest.mark.parametrize(
    "client",
    [
        lambda: A2AClient(RemoteSettings(url="http://127.0.0.1:9")),
        lambda: A2AClient(RemoteSettings(url="https://127.0.0.1:9", name="far")),
        lambda: open_room("http://127.0.0.1:9"),
        lambda: open_room("ws://127.0.0.1:9"),
    ],
    ids=["remote", "named remote", "participant", "participant at a socket"],
)
async def test_the_breaker_of_a_closed_client_leaves_the_metrics(
    client: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    with measuring() as measured:
        async with client() as held:
            assert count_breakers(measured) == 1
        assert held
        assert count_breakers(measured) == 0
