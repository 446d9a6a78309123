"""Background work ends with its block."""

import asyncio

import pytest

from trunkline.runtime import run_in_background


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
