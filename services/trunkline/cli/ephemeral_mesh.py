"""Runs a temporary mesh in a child process while a command needs one."""

import asyncio
import importlib
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trunkline.cli.options import is_mesh_named, resolve_base_url
from trunkline.cli.terminal import print_stderr
from trunkline.core import runtime
from trunkline.core.network import is_listening, is_this_machine
from trunkline.core.settings import ENV_PREFIX
from trunkline.errors import PeerTimeoutError, PeerUnavailableError

START_A_MESH = "no mesh answers there; start one with `trunkline up`, or give another --url"
_START_TIMEOUT_S = 60.0
# A mesh without running tasks stops much faster. After this time it is killed.
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class MeshAddresses:
    """The addresses of a mesh."""

    http: str
    """The base URL of A2A over HTTP."""
    mesh: str
    """The gRPC address, or "" unless the mesh is ephemeral."""
    is_ephemeral: bool = True
    """True if the mesh runs only as long as the command."""


@asynccontextmanager
async def start_ephemeral_mesh(workflow: str = "") -> AsyncGenerator[MeshAddresses]:
    """Run a mesh on free ports and in a temporary folder while a block runs.

    `workflow` is a file, or the name of an installed workflow, that it runs besides.

    Raises:
        PeerUnavailableError: it did not start, and printed the reason to stderr.
        PeerTimeoutError: it took too long to start.
    """
    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        process = await _spawn(folder, workflow)
        try:
            # The mesh takes longer to start than our client takes to load.
            await runtime.load_in_thread(importlib.import_module, "trunkline.cli.ask")
            yield await _wait_until_ready(process)
        finally:
            # Its folder is removed next.
            await stop_process(process, timeout_s=_STOP_TIMEOUT_S)


@asynccontextmanager
async def open_mesh(
    url: str | None, *, may_start: bool = True, workflow: str = ""
) -> AsyncGenerator[MeshAddresses]:
    """Yield the addresses of the mesh at `url`, of TRUNKLINE_URL, or of the default one.

    If neither names a mesh, `may_start`, and no server listens at the default address, which is of
    this machine, an ephemeral mesh runs instead, with the `workflow`. A line on stderr says so.

    Raises:
        ConfigurationError: the URL is not an HTTP URL.
        PeerUnavailableError: the ephemeral mesh did not start.
        PeerTimeoutError: the ephemeral mesh took too long to start.
    """
    base = resolve_base_url(url)
    may_start = may_start and not is_mesh_named(url) and is_this_machine(base)
    if not may_start or await is_listening(base):
        yield MeshAddresses(http=base, mesh="", is_ephemeral=False)
        return
    print_stderr(
        f"no mesh at {base}: starting an ephemeral one (`trunkline up` starts one that stays)"
    )
    async with start_ephemeral_mesh(workflow) as addresses:
        yield addresses


async def _spawn(folder: str, workflow: str) -> Process:
    free_port = "127.0.0.1:0"
    addresses = ("--http", free_port, "--a2a-grpc", free_port, "--mesh", free_port)
    return await asyncio.create_subprocess_exec(
        # -P: the current folder is not searched for modules.
        *(sys.executable, "-P", "-m", "trunkline.cli", "up", *addresses),
        *("--data", folder, "--json", "--attached"),
        *(("--workflow", workflow) if workflow else ()),
        # Nothing is written to it. It closes when this process ends for any reason, and the mesh
        # stops then.
        stdin=PIPE,
        stdout=PIPE,
        # PREWARM: the first question follows at once. DRAIN_GRACE_S: no task runs when the mesh
        # stops. ANONYMOUS: the mesh listens on this machine only and serves one command.
        env={
            **os.environ,
            f"{ENV_PREFIX}PREWARM": "true",
            f"{ENV_PREFIX}DRAIN_GRACE_S": "0",
            f"{ENV_PREFIX}ANONYMOUS": "true",
        },
        # Ctrl-C signals the command alone, which then stops the mesh.
        start_new_session=True,
    )


async def _wait_until_ready(process: Process) -> MeshAddresses:
    peer = "the ephemeral mesh"
    if process.stdout is None:
        raise PeerUnavailableError(peer, "it has no output")
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
    except TimeoutError:
        raise PeerTimeoutError(peer, f"it did not start within {_START_TIMEOUT_S:g} s") from None
    if not line:
        raise PeerUnavailableError(peer, "it did not start; its output above says why")
    ready = json.loads(line)
    return MeshAddresses(http=ready["http"], mesh=ready["mesh"])


async def stop_process(process: Process, *, timeout_s: float) -> None:
    """Stop a process by SIGTERM, and kill it if it runs on for `timeout_s`. It has ended then.

    That holds after Ctrl-C, too.
    """
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(timeout_s):
            await process.wait()
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
