"""Work beside a block lasts as long as the block."""

import asyncio
from collections.abc import Iterator

import pytest

from trunkline.client import Backoff, run_in_background
from trunkline.client.channels import is_local


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


def pauses(backoff: Backoff) -> Iterator[float]:
    while True:
        yield backoff.next_s()


def test_pauses_double_up_to_the_limit_each_cut_by_up_to_half() -> None:
    backoff = Backoff(first_s=0.1, limit_s=0.5)
    for whole, pause in zip([0.1, 0.2, 0.4, 0.5, 0.5], pauses(backoff), strict=False):
        assert whole / 2 <= pause <= whole
    backoff.reset()
    assert backoff.next_s() <= 0.1


async def test_a_pause_lasts_as_long_as_it_says() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await Backoff(first_s=0.02).pause()
    assert loop.time() - began >= 0.009


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("127.0.0.1:50051", True),
        ("127.9.9.9:1", True),
        ("localhost:50051", True),
        ("[::1]:50051", True),
        ("unix:/tmp/mesh.sock", True),
        ("10.0.0.1:50051", False),
        ("mesh.example:50051", False),
        ("dns:///mesh.example:50051", False),
    ],
)
def test_what_stays_on_this_machine_is_known_as_such(target: str, expected: bool) -> None:
    assert is_local(target) is expected
