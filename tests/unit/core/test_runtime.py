"""Background work ends with its block, and periodic work is aligned between processes."""

import asyncio
import gc
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.runtime import finish, next_tick, run_in_background


class Work:
    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.has_ended = False

    async def run(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended = True

    async def fail(self) -> None:
        raise KeyError("the work's own")


async def test_work_ends_with_its_block() -> None:
    work = Work()
    async with run_in_background(work.run()):
        await work.started.wait()
        assert not work.has_ended
    assert work.has_ended


async def test_an_exception_of_the_block_is_raised_unwrapped() -> None:
    work = Work()

    async def block() -> None:
        async with run_in_background(work.run()):
            await work.started.wait()
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await block()
    assert work.has_ended


async def test_a_generator_whose_block_has_work_can_be_closed() -> None:
    work = Work()

    async def generate() -> AsyncGenerator[int]:
        async with run_in_background(work.run()):
            await work.started.wait()
            yield 1

    numbers = generate()
    assert await anext(numbers) == 1
    await numbers.aclose()
    assert work.has_ended


async def test_work_that_fails_ends_the_block() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with run_in_background(Work().fail()):
            await asyncio.Event().wait()
    assert caught.group_contains(KeyError)


async def test_cancelling_the_block_cancels_the_work_and_propagates() -> None:
    work = Work()

    async def block() -> None:
        async with run_in_background(work.run()):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(block())
        await work.started.wait()
        task.cancel()
    assert task.cancelled()
    assert work.has_ended


@pytest.mark.parametrize("error", [None, KeyError("the write's own")])
async def test_a_caller_that_is_canceled_again_and_again_waits_for_the_end(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    writing: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        caller = group.create_task(finish(writing))
        for _ in range(3):
            await asyncio.sleep(0)
            caller.cancel()
            await asyncio.wait({caller}, timeout=0.01)
            assert not caller.done()
        if error is None:
            writing.set_result("written")
        else:
            writing.set_exception(error)
    assert caller.cancelled()
    del writing, caller
    gc.collect()
    assert caplog.messages == []


async def test_a_caller_that_is_not_canceled_gets_the_result_or_the_error() -> None:
    loop = asyncio.get_running_loop()
    writing: asyncio.Future[str] = loop.create_future()
    loop.call_soon(writing.set_result, "written")
    assert await finish(writing) == "written"
    failing: asyncio.Future[str] = loop.create_future()
    loop.call_soon(failing.set_exception, KeyError("the write's own"))
    with pytest.raises(KeyError, match="the write's own"):
        await finish(failing)


async def test_a_timeout_is_raised_at_the_end() -> None:
    loop = asyncio.get_running_loop()
    writing: asyncio.Future[None] = loop.create_future()
    loop.call_later(0.05, writing.set_result, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await finish(writing)
    assert writing.done()


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
