"""A network of nodes, each with an address of its own, and links between them that can fail."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

from harness.mesh.processes import running_process

_ROUTER: Final = Path(__file__).with_name("router.py")
_START_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Link:
    """How packets travel in one direction."""

    is_cut: bool = False
    """Nothing arrives, and the sender gets no error."""
    delay_s: float = 0.0
    loss: float = 0.0
    """The share of packets that are lost."""


HEALTHY: Final = Link()


@dataclass(frozen=True, slots=True)
class Node:
    """A place for processes, with an address that other nodes reach."""

    name: str
    host: str
    """The address."""
    entry: tuple[str, ...] = ()
    """The words before a command that run it at this node."""

    def run_as(self, user: int, group: int) -> tuple[str, ...]:
        """Return the words that run a command at this node as another user."""
        if not self.entry:
            return ()
        return (*self.entry, "--setuid", str(user), "--setgid", str(group))


LOCAL: Final = Node("local", "127.0.0.1")
"""This machine, for a server that needs no node of its own."""


class Network:
    """Nodes in network namespaces of their own, whose links fail as told."""

    def __init__(self, nodes: Sequence[Node], router: asyncio.subprocess.Process | None) -> None:
        """Without a router, the nodes are addresses of this machine, and no link can fail."""
        self.nodes = {node.name: node for node in nodes}
        self._router = router
        self._turn = asyncio.Lock()

    @property
    def has_links(self) -> bool:
        """False if this machine lets the tests make no namespaces, so that no link can fail."""
        return self._router is not None

    async def set_link(self, sender: str, receiver: str, link: Link) -> None:
        """Change one direction between two nodes."""
        assert self._router is not None, "this machine has no links"
        assert self._router.stdin is not None
        assert self._router.stdout is not None
        ends = {"sender": self.nodes[sender].host, "receiver": self.nodes[receiver].host}
        async with self._turn:
            self._router.stdin.write(json.dumps(ends | asdict(link)).encode() + b"\n")
            answer = await self._router.stdout.readline()
        assert answer == b"\n", "the router has ended"


@asynccontextmanager
async def open_network(*names: str) -> AsyncIterator[Network]:
    """Make nodes for the length of a block.

    They are network namespaces, which only root can make on most machines. Else they are addresses
    of the loopback interface: `Network.has_links` says so.
    """
    if not can_make_namespaces():
        # Tests that run at the same time have other addresses.
        prefix = f"127.{64 + os.getpid() // 256 % 64}.{os.getpid() % 256}"
        nodes = [Node(name, f"{prefix}.{number}") for number, name in enumerate(names, 1)]
        yield Network(nodes, None)
        return
    hosts = [f"10.77.0.{number}" for number, _ in enumerate(names, 1)]
    async with running_process(
        sys.executable, "-u", "-P", str(_ROUTER), *hosts,
        cwd=_ROUTER.parent, stdin=asyncio.subprocess.PIPE,
    ) as router:  # fmt: skip
        assert router.stdout is not None
        async with asyncio.timeout(_START_LIMIT_S):
            made: dict[str, int] = json.loads(await router.stdout.readline())
        yield Network(
            [
                Node(name, host, ("nsenter", f"--net=/proc/{router.pid}/fd/{made[host]}"))
                for name, host in zip(names, hosts, strict=True)
            ],
            router,
        )


@cache
def can_make_namespaces() -> bool:
    """Return True if this process may make network namespaces with devices of their own."""
    if not os.access("/dev/net/tun", os.W_OK) or not shutil.which("nsenter"):
        return False
    # In a container, root may lack the capability.
    probe = subprocess.run(("unshare", "--net", "true"), check=False, stderr=subprocess.DEVNULL)
    return probe.returncode == 0
