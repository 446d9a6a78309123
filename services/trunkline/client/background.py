"""Runs one piece of work for as long as a block lasts."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` beside the block and cancel it when the block ends.

    What the block raises comes out as it is; when the work itself fails, the block is cancelled
    and the failure comes out as an exception group, as from any task group.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        except Exception as error:  # noqa: BLE001  raised again below, out of the group's wrapping
            failure = error
        finally:
            task.cancel()
    if failure is not None:
        raise failure
