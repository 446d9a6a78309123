"""An agent in a separate process that a test can kill, on a mesh in this process."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.mesh.processes import read_line, running_process
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh


@dataclass
class KillableAgent:
    """The agent, which can be restarted any number of times; the stack ends its last process."""

    mesh: SmallMesh
    name: str
    command: tuple[str, ...]
    """The command that serves it, without the options `--mesh` and `--data`."""
    data: Path
    stack: AsyncExitStack
    cwd: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until the mesh lists this process and not an earlier one."""
        earlier = {host.address for host in self.mesh.directory.hosts}
        options = ("--mesh", self.mesh.registry_address, "--data", str(self.data))
        self.process = await self.stack.enter_async_context(
            running_process(*self.command, *options, cwd=self.cwd, environment=self.environment)
        )
        await read_line(self.process, "ready ")
        await self.mesh.directory.wait_until(
            lambda known: (
                self.name in known.list_agents()
                and not earlier.issuperset(host.address for host in known.list_replicas(self.name))
            ),
            timeout_s=PATIENCE_S,
        )

    async def kill(self) -> None:
        """Kill it, as the system does when memory runs out."""
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        """Stop it in order."""
        assert self.process is not None
        self.process.terminate()
        assert await self.process.wait() == 0

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it in a block."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    async def kill_and_start(self) -> None:
        """Kill it and start it again."""
        await self.kill()
        await self.start()
