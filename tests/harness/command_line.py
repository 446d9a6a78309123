"""`trunkline` as people run it: a process of its own, and what it did."""

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "trunkline.cli")
LIMIT_S = 45.0


@dataclass(frozen=True)
class Done:
    """What a command did."""

    exit: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def start(
    *words: str, stdin: int | None = None, folder: Path | None = None, **variables: str
) -> asyncio.subprocess.Process:
    """Start a command, leading a session of its own; `variables` are of its environment."""
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        cwd=folder,
        stdin=stdin or asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
    )


async def run(
    *words: str, stdin: str | None = None, folder: Path | None = None, **variables: str
) -> Done:
    """Run a command to its end. No command ever shows a traceback."""
    pipe = None if stdin is None else asyncio.subprocess.PIPE
    process = await start(*words, stdin=pipe, folder=folder, **variables)
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate(None if stdin is None else stdin.encode())
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in err.decode()
    return Done(process.returncode, out.decode(), err.decode())
