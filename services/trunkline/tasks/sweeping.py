"""Removes the files of tasks that are gone, and what nobody goes on writing."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final

from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.tasks.files import JournalFiles
from trunkline.tasks.slots import TaskSlots

logger = logging.getLogger(__name__)

_EVERY_S: Final = 600.0


async def sweep(files: JournalFiles, runs: TaskSlots) -> None:
    """Look every ten minutes: files go with their tasks, which retention lets go one day.

    A file may be there before its task, whose place is held then, or just about to be.
    """
    suspects: set[str] = set()
    while True:
        await asyncio.sleep(_EVERY_S)
        try:
            suspects = await sweep_once(files, runs, suspects)
        except (JournalUnavailableError, FencedError) as error:
            logger.warning("artifacts.not_swept", extra={"reason": error.reason})


async def sweep_once(files: JournalFiles, runs: TaskSlots, suspects: set[str]) -> set[str]:
    """Remove what belonged to no task at the last look, and doesn't now; return what is new."""
    if files.blobs is None:
        return set()
    lonely: set[str] = set()
    for task_id in await asyncio.to_thread(files.blobs.list_task_ids):
        if runs.find(task_id) is None and not files.has_task(task_id):
            lonely.add(task_id)
        await asyncio.sleep(0)
    gone = lonely & suspects
    await asyncio.to_thread(files.blobs.remove, gone)
    await asyncio.to_thread(files.blobs.remove_abandoned, datetime.now(UTC).timestamp())
    if gone:
        logger.info("artifacts.swept", extra={"tasks": len(gone)})
    return lonely - gone
