"""Files of any size pass every hop in bounded memory, resume after a cut, and stay intact.

This promise has no number. It is in design section 4, under ArtifactService.
"""

import asyncio
import hashlib
import random
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from harness.a2a.sse_client import Json, call, user_message
from harness.agents.file_agent import PIECE_BYTES, pieces
from harness.mesh.processes import Services, running_services
from harness.promise_scale import PromiseScale
from harness.remote.socket_server import listening

MIB = 1024 * 1024
ABOVE_IDLE_BYTES = 64 * MIB
PATIENCE_S = 300.0
_AGENT = "harness.agents.file_agent:files"
_TESTS = Path(__file__).parents[1]


def status_bytes(pid: int, name: str) -> int:
    """Return a memory figure of a process, as Linux reports it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


class Memory:
    """The peak memory growth of each process since construction."""

    def __init__(self, services: Services) -> None:
        self._pids = {name: process.pid for name, process in services.processes.items()}
        self._idle = {}
        for name, pid in self._pids.items():
            # Reset the peak counter.
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            self._idle[name] = status_bytes(pid, "VmRSS")

    def peak_growth(self) -> dict[str, int]:
        """Return the growth in bytes, by the name of the service."""
        return {
            name: status_bytes(pid, "VmHWM") - self._idle[name] for name, pid in self._pids.items()
        }


async def download(
    client: httpx2.AsyncClient, url: str, size_bytes: int, cuts: Iterable[int]
) -> str:
    """Read a file over `cuts` + 1 connections; return its checksum."""
    digest, at, etag = hashlib.sha256(), 0, ""
    for cut in (*sorted(cuts), size_bytes):
        headers = {"range": f"bytes={at}-", "if-range": etag} if at else {}
        async with client.stream("GET", url, headers=headers) as response:
            assert response.status_code == (206 if at else 200)
            etag = response.headers["etag"]
            async for piece in response.aiter_raw(64 * 1024):
                digest.update(piece)
                at += len(piece)
                if cut <= at < size_bytes:
                    break
    assert at == size_bytes
    return digest.hexdigest()


@asynccontextmanager
async def reads_nothing(url: str) -> AsyncIterator[None]:
    """Request a file, and read nothing of it."""
    at = urlsplit(url)
    with socket.socket() as connection:
        # A small receive buffer: unread data stays with the server.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (at.hostname, at.port))
        request = f"GET {at.path} HTTP/1.1\r\nhost: {at.netloc}\r\n\r\n"
        await loop.sock_sendall(connection, request.encode())
        yield


@asynccontextmanager
async def site(seed: int, count: int) -> AsyncIterator[str]:
    """Serve a file over HTTP; yield its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        async for piece in pieces(seed, count):
            writer.write(piece)
            await writer.drain()

    async with listening(answer) as port:
        yield f"http://127.0.0.1:{port}/file"


async def checksum(seed: int, count: int) -> str:
    digest = hashlib.sha256()
    async for piece in pieces(seed, count):
        digest.update(piece)
    return digest.hexdigest()


def texts(task: Json) -> str:
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    return "".join(part.get("text", "") for part in parts)


async def test_files_of_any_size_pass_every_hop_in_little_memory(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    """An agent behind a supervisor makes a file, read with cuts; another reads one from a URL."""
    count = scale.pick(ci=20, prove=210)
    seed, size_bytes = rng.randrange(1_000_000), count * PIECE_BYTES
    expected = await checksum(seed, count)
    async with (
        asyncio.timeout(PATIENCE_S * scale.pick(ci=1, prove=5)),
        running_services(
            tmp_path,
            agents=("supervisor",),
            others={"files": _AGENT},
            environment={
                "TRUNKLINE_ALLOW_FETCH": "127.0.0.1",
                "TRUNKLINE_LEASE_S": "2",
                "PYTHONPATH": str(_TESTS),
            },
        ) as services,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
    ):

        async def ask(text: str, *parts: Json) -> Json:
            message = user_message(text)
            message["parts"] += parts
            answer = await call(services.http_url, "/", "SendMessage", {"message": message})
            task: Json = answer["result"]["task"]
            assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
            return task

        def url_of(task: Json) -> str:
            # The answer of a supervisor has the files that its agents streamed.
            parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
            (url,) = {part["url"] for part in parts if "url" in part}
            return str(url)

        # Loading at the first use must not count as memory of the file.
        small = await ask("file 1 1")
        await download(client, url_of(small), PIECE_BYTES, ())
        await ask("look at this file", {"url": url_of(small)})
        memory = Memory(services)

        url = url_of(await ask(f"file {seed} {count}"))
        stalled = scale.pick(ci=5, prove=20)
        cuts = [rng.randrange(1, size_bytes) for _ in range(3)]
        async with AsyncExitStack() as readers:
            for _ in range(stalled):
                await readers.enter_async_context(reads_nothing(url))
            assert await download(client, url, size_bytes, cuts) == expected
        async with site(seed, count) as origin_url:
            description = texts(await ask("look at this file", {"url": origin_url}))
        assert f"{size_bytes} {expected}" in description
        # A message with the file's URL back to the mesh does not load it in one piece either.
        assert expected in texts(await ask("look at this file", {"url": url}))

        peak_growth = memory.peak_growth()
        assert max(peak_growth.values()) <= ABOVE_IDLE_BYTES, peak_growth

        # Its host is killed during a read, and another host takes over its journal.
        await services.start("others", "agents", "--agent", _AGENT)
        async with client.stream("GET", url) as response:
            digest = hashlib.sha256()
            is_killed = False
            async for piece in response.aiter_raw(64 * 1024):
                digest.update(piece)
                if not is_killed:
                    is_killed = True
                    await services.kill("files")
        assert digest.hexdigest() == expected
        scale.report(
            size_mib=round(size_bytes / MIB),
            cuts=len(cuts),
            stalled=stalled,
            gained_mib={name: round(more / MIB, 1) for name, more in peak_growth.items()},
        )
