"""Places beside a mesh from which strangers attack: other users, and other networks."""

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

NOBODY: Final = 65534
"""A user without rights on any system."""
_COMMAND_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Network:
    """A network namespace that reaches this one by a pair of virtual interfaces."""

    name: str
    host: str
    """The address of this namespace, as the other one sees it."""

    def enter(self, *command: str) -> tuple[str, ...]:
        """Return a command that runs inside it."""
        return ("ip", "netns", "exec", self.name, *command)


def find_obstacle() -> str:
    """Return why this machine lets us use no other user and no other network, or ""."""
    if sys.platform != "linux":
        return "the system has no network namespaces"
    if os.geteuid() != 0:
        return "only root may become another user"
    return "" if shutil.which("ip") else "the command ip is missing"


@asynccontextmanager
async def open_network() -> AsyncIterator[Network | str]:
    """Yield a network, or the reason why this machine makes none."""
    name = f"t{secrets.token_hex(4)}"
    ours, theirs = f"{name}a", f"{name}b"
    # From the range for benchmarks (RFC 2544), which is not routed.
    prefix = f"198.18.{secrets.randbelow(256)}"
    steps = (
        ("netns", "add", name),
        ("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name),
        ("addr", "add", f"{prefix}.1/30", "dev", ours),
        ("link", "set", ours, "up"),
        ("-n", name, "addr", "add", f"{prefix}.2/30", "dev", theirs),
        ("-n", name, "link", "set", theirs, "up"),
        ("-n", name, "link", "set", "lo", "up"),
    )
    try:
        for step in steps:
            problem = await _run_ip(*step)
            if problem:
                yield f"ip {' '.join(step)}: {problem}"
                return
        yield Network(name, f"{prefix}.1")
    finally:
        # Takes both interfaces with it.
        await _run_ip("netns", "delete", name)


async def _run_ip(*words: str) -> str:
    """Run `ip`; return its error, or ""."""
    async with asyncio.timeout(_COMMAND_S):
        process = await asyncio.create_subprocess_exec(
            "ip", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, error = await process.communicate()
    return error.decode().strip() if process.returncode else ""
