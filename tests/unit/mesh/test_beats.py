"""What the processes of a machine do every so often, they do at the same moments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.aligned_timer import next_tick


@given(st.floats(0.0, 1e8), st.floats(0.01, 1000.0))
def test_a_beat_is_that_of_all_and_comes_neither_at_once_nor_late(
    now_s: float, period_s: float
) -> None:
    beat_s = next_tick(now_s, period_s)
    assert beat_s / period_s == pytest.approx(round(beat_s / period_s))
    slack_s = 1e-6 * (period_s + 1)
    assert now_s + 0.1 * period_s - slack_s <= beat_s <= now_s + 1.1 * period_s + slack_s


@given(st.floats(0.0, 1e6), st.floats(0.01, 1000.0))
def test_beats_are_a_period_apart_also_for_a_timer_that_is_early(
    now_s: float, period_s: float
) -> None:
    first_s = next_tick(now_s, period_s)
    second_s = next_tick(first_s - 0.05 * period_s, period_s)
    assert second_s == pytest.approx(first_s + period_s)
