"""A mesh in a child process that lives as long as the command that needs it."""

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from trunkline.cli.options import base_url
from trunkline.cli.terminal import say
from trunkline.errors import PeerTimeoutError, PeerUnavailableError
from trunkline.settings import PREFIX

START_LIMIT_S = 60.0
# More than the mesh gives the work under way when it is told to stop.
STOP_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a mesh serves."""

    http: str
    mesh: str
    is_ephemeral: bool = True


@asynccontextmanager
async def ephemeral_mesh() -> AsyncGenerator[Addresses]:
    """Start a mesh on ports and in a folder of its own; stop it and remove the folder at the end.

    Raises:
        PeerUnavailableError: it didn't start; it has said why on stderr.
        PeerTimeoutError: it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        process = await _spawn(folder)
        try:
            yield await _ready(process)
        finally:
            await _stop(process)


@asynccontextmanager
async def mesh_at(url: str | None) -> AsyncGenerator[Addresses]:
    """Yield the mesh at `url`; without one that at the default, or an ephemeral one if none is."""
    base = base_url(url)
    if url is not None or await _answers(base):
        yield Addresses(http=base, mesh="", is_ephemeral=False)
        return
    say(f"no mesh at {base}: starting an ephemeral one (`trunkline up` starts one that stays)")
    async with ephemeral_mesh() as addresses:
        yield addresses


async def _answers(base: str) -> bool:
    parts = urlsplit(base)
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True


async def _spawn(folder: str) -> Process:
    addresses = ("--http", "127.0.0.1:0", "--mesh", "127.0.0.1:0")
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trunkline.cli", "up", *addresses),
        *("--data", folder, "--json", "--attached"),
        # Held open and never written to: it ends with this process, however that ends.
        stdin=PIPE,
        stdout=PIPE,
        # A question is what it was started for.
        env={**os.environ, f"{PREFIX}PREWARM": "true"},
        # Ctrl-C is for the command: it stops the mesh when it is through with it.
        start_new_session=True,
    )


async def _ready(process: Process) -> Addresses:
    peer = "the ephemeral mesh"
    if process.stdout is None:
        raise PeerUnavailableError(peer, "it has no output")
    try:
        async with asyncio.timeout(START_LIMIT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise PeerTimeoutError(peer, f"it did not start within {START_LIMIT_S:g} s") from None
    if not line:
        raise PeerUnavailableError(peer, "it did not start; see above why")
    ready = json.loads(line)
    return Addresses(http=ready["http"], mesh=ready["mesh"])


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
