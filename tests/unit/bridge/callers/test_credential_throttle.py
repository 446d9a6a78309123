"""The throttle of wrong credentials, by address and by name."""

import pytest

from harness.journal.manual_clock import ManualClock
from trunkline.a2a_wire.errors import OVERLOADED, WireError
from trunkline_bridge.callers import credential_throttle
from trunkline_bridge.callers.credential_throttle import CredentialThrottle

HERE, ELSEWHERE = "203.0.113.7", "203.0.113.8"


def fail(throttle: CredentialThrottle, address: str, count: int, *, name: str = "") -> None:
    for number in range(count):
        throttle.check(address, f"wrong {number}")
        throttle.record_failure(address, f"wrong {number}", name=name)


def wait_s(throttle: CredentialThrottle, address: str, credential: str = "any") -> int:
    """Return the Retry-After of an attempt; 0: it is checked."""
    try:
        throttle.check(address, credential)
    except WireError as error:
        return int(error.retry_after_s)
    return 0


def test_an_address_waits_after_its_failures_and_no_other_does() -> None:
    clock = ManualClock()
    throttle = CredentialThrottle(6, clock)
    fail(throttle, HERE, 6)
    assert wait_s(throttle, HERE) == 10
    assert wait_s(throttle, ELSEWHERE) == 0
    clock.now += 9.5
    assert wait_s(throttle, HERE) == 1
    clock.now += 0.6
    fail(throttle, HERE, 1)
    assert wait_s(throttle, HERE) == 10


def test_a_right_credential_goes_on_at_a_throttled_address() -> None:
    throttle = CredentialThrottle(3, ManualClock())
    throttle.record_success(HERE, "right")
    fail(throttle, HERE, 3)
    assert wait_s(throttle, HERE, "right") == 0
    assert wait_s(throttle, HERE, "another") > 0
    assert wait_s(throttle, ELSEWHERE, "another") == 0
    # Its key was removed.
    throttle.record_failure(HERE, "right")
    assert wait_s(throttle, HERE, "right") > 0


def test_a_genuine_credential_counts_for_its_name_and_not_for_its_address() -> None:
    throttle = CredentialThrottle(3, ManualClock())
    for number in range(3):
        fail(throttle, f"203.0.113.{number}", 1, name="ci")
    with pytest.raises(WireError) as raised:
        throttle.record_failure(ELSEWHERE, "expired", name="ci")
    assert (raised.value.kind, raised.value.retry_after_s) == (OVERLOADED, "20")
    # The new key of that name, from the same and from other addresses.
    assert wait_s(throttle, ELSEWHERE, "new") == 0
    assert wait_s(throttle, "203.0.113.1", "new") == 0
    fail(throttle, ELSEWHERE, 1, name="other")


@pytest.mark.parametrize(
    ("address", "neighbor", "stranger"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1"),
        ("::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"),
        ("fe80::1%eth0", "fe80::2%eth1", "fe81::1"),
        ("", "", "192.0.2.1"),
    ],
)
def test_an_ipv6_network_is_one_client(address: str, neighbor: str, stranger: str) -> None:
    throttle = CredentialThrottle(2, ManualClock())
    fail(throttle, address, 2)
    assert wait_s(throttle, neighbor) > 0
    assert wait_s(throttle, stranger) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_throttle, "MAX_CLIENTS", 3)
    monkeypatch.setattr(credential_throttle, "MAX_ACCEPTED", 3)
    throttle = CredentialThrottle(1, ManualClock())
    for number in range(10):
        fail(throttle, f"192.0.2.{number}", 1)
        throttle.record_success(HERE, f"right {number}")
    waits = [wait_s(throttle, f"192.0.2.{number}") > 0 for number in range(10)]
    assert waits == [False] * 7 + [True] * 3
    fail(throttle, HERE, 1)
    accepted = [wait_s(throttle, HERE, f"right {number}") == 0 for number in range(10)]
    assert accepted == [False] * 7 + [True] * 3


def test_zero_turns_it_off() -> None:
    throttle = CredentialThrottle(0, ManualClock())
    fail(throttle, HERE, 1000)
    fail(throttle, HERE, 1000, name="ci")
    throttle.record_success(HERE, "right")
    assert wait_s(throttle, HERE) == 0
