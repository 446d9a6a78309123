"""Periodic work of all processes on a machine runs at the same times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.runtime import next_tick


@given(st.floats(0.0, 1e8), st.floats(0.01, 1000.0))
def test_a_tick_is_a_multiple_of_the_period_within_its_bounds(
    now_s: float, period_s: float
) -> None:
    tick_s = next_tick(now_s, period_s)
    assert tick_s / period_s == pytest.approx(round(tick_s / period_s))
    slack_s = 1e-6 * (period_s + 1)
    assert now_s + 0.1 * period_s - slack_s <= tick_s <= now_s + 1.1 * period_s + slack_s


@given(st.floats(0.0, 1e6), st.floats(0.01, 1000.0))
def test_ticks_are_a_period_apart_even_if_a_timer_fires_early(
    now_s: float, period_s: float
) -> None:
    first_s = next_tick(now_s, period_s)
    second_s = next_tick(first_s - 0.05 * period_s, period_s)
    assert second_s == pytest.approx(first_s + period_s)
