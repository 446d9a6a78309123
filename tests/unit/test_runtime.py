"""Background work lasts as long as its block."""

import asyncio

import pytest

from trunkline.runtime import run_in_background


class Work:
    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.is_over = False

    async def go_on(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_over = True

    async def fail(self) -> None:
        raise KeyError("the work's own")


async def test_work_ends_with_its_block() -> None:
    work = Work()
    async with run_in_background(work.go_on()):
        await work.began.wait()
        assert not work.is_over
    assert work.is_over


async def test_what_the_block_raises_comes_out_unwrapped() -> None:
    work = Work()

    async def block() -> None:
        async with run_in_background(work.go_on()):
            await work.began.wait()
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await block()
    assert work.is_over


async def test_work_that_fails_ends_the_block() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with run_in_background(Work().fail()):
            await asyncio.Event().wait()
    assert caught.group_contains(KeyError)


async def test_cancelling_the_block_cancels_the_work_and_goes_on_outwards() -> None:
    work = Work()

    async def block() -> None:
        async with run_in_background(work.go_on()):
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(block())
        await work.began.wait()
        task.cancel()
    assert task.cancelled()
    assert work.is_over
