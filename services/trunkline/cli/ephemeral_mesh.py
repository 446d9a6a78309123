"""Runs a mesh in a child process for as long as one command needs it."""

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from trunkline.cli.options import resolve_base_url
from trunkline.cli.terminal import say
from trunkline.errors import PeerTimeoutError, PeerUnavailableError
from trunkline.network import is_this_machine
from trunkline.settings import ENV_PREFIX

START_LIMIT_S = 60.0
# A mesh without running tasks stops much faster.
STOP_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class MeshAddresses:
    """The addresses of a mesh."""

    http: str
    mesh: str
    is_ephemeral: bool = True


@asynccontextmanager
async def start_ephemeral_mesh() -> AsyncGenerator[MeshAddresses]:
    """Start a mesh on free ports and in a temporary folder. Stops it and deletes the folder.

    Raises:
        PeerUnavailableError: it did not start. It printed the reason to stderr.
        PeerTimeoutError: it took too long to start.
    """
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        process = await _spawn(folder)
        try:
            yield await _wait_until_ready(process)
        finally:
            await _stop(process)


@asynccontextmanager
async def open_mesh(url: str | None, *, may_start: bool = True) -> AsyncGenerator[MeshAddresses]:
    """Yield the mesh at `url`, or the default one.

    If no mesh answers at an address of this machine, an ephemeral one is started, unless
    `may_start` is false.
    """
    base = resolve_base_url(url)
    if not (may_start and is_this_machine(base)) or await _is_port_open(base):
        yield MeshAddresses(http=base, mesh="", is_ephemeral=False)
        return
    say(f"no mesh at {base}: starting an ephemeral one (`trunkline up` starts one that stays)")
    async with start_ephemeral_mesh() as addresses:
        # The URL may be an agent's.
        yield replace(addresses, http=addresses.http + urlsplit(base).path)


async def _is_port_open(base: str) -> bool:
    parts = urlsplit(base)
    try:
        async with asyncio.timeout(5):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except TimeoutError:
        # The port is in use by a slow server.
        return True
    except OSError:
        return False
    writer.close()
    return True


async def _spawn(folder: str) -> Process:
    free = "127.0.0.1:0"
    addresses = ("--http", free, "--a2a-grpc", free, "--mesh", free)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trunkline.cli", "up", *addresses),
        *("--data", folder, "--json", "--attached"),
        # Held open and never written to: the mesh stops when this process ends for any reason.
        stdin=PIPE,
        stdout=PIPE,
        # The first question follows at once, and no task is left when the mesh stops. Only the user
        # who started the mesh can reach it, so no authentication is needed.
        env={
            **os.environ,
            f"{ENV_PREFIX}PREWARM": "true",
            f"{ENV_PREFIX}DRAIN_GRACE_S": "0",
            f"{ENV_PREFIX}ANONYMOUS": "true",
        },
        # Ctrl-C is for the command, which stops the mesh itself.
        start_new_session=True,
    )


async def _wait_until_ready(process: Process) -> MeshAddresses:
    peer = "the ephemeral mesh"
    if process.stdout is None:
        raise PeerUnavailableError(peer, "it has no output")
    try:
        async with asyncio.timeout(START_LIMIT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise PeerTimeoutError(peer, f"it did not start within {START_LIMIT_S:g} s") from None
    if not line:
        raise PeerUnavailableError(peer, "it did not start; its output above says why")
    ready = json.loads(line)
    return MeshAddresses(http=ready["http"], mesh=ready["mesh"])


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
