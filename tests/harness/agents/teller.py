"""An agent that stops half way in its first run, for tests that kill its host: `teller`.

The request `same` gets the same text in each run, and `other` another one in the second.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

from trunkline import TaskContext, agent

BEGAN = Path(os.environ.get("TELLER_FOLDER", ".")) / "began"


@agent(name="teller", description="Tells a story.", repeatable=True)
async def teller(task: TaskContext) -> AsyncGenerator[str, None]:
    """Tell a story in two parts."""
    is_first = not BEGAN.exists()
    BEGAN.touch()
    yield "once "
    yield "upon " if is_first or task.text == "same" else "more "
    if is_first:
        await task.working("half way")
        await asyncio.Event().wait()
    yield "a time"
