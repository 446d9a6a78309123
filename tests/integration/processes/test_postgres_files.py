"""Two machines share a database: files of tasks are whole after the host of one was killed."""

import asyncio
import base64
import hashlib
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import httpx2
import pytest

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.agents.file_agent import pieces
from harness.journal.postgres_server import new_database
from harness.journal.s3_server import list_objects, new_bucket
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.polling import poll
from trunkline.core.json_values import read_member
from trunkline.core.postgres import PostgresDatabase
from trunkline.core.settings import Settings
from trunkline.mesh.client.artifacts import ArtifactClient, parse_reference
from trunkline.v1 import part_pb2

TESTS = Path(__file__).parents[2]
LEASE_S = 2.0
SENT = bytes(range(256)) * 4000


@pytest.mark.parametrize("has_bucket", [False, True], ids=["in chunks", "in a bucket"])
async def test_files_are_whole_at_the_next_machine(tmp_path: Path, has_bucket: bool) -> None:
    command = (*COMMAND, "serve", "agents", "--agent", "harness.agents.file_agent:files")
    settings = Settings(default_agent="files")
    async with (
        new_database() as url,
        PostgresDatabase(url) as database,
        open_bridged_mesh(tmp_path, settings, lease_s=LEASE_S) as bridged,
        AsyncExitStack() as stack,
    ):
        environment = {"TRUNKLINE_STORE": url, "TRUNKLINE_LEASE_S": str(LEASE_S)}
        if has_bucket:
            # The processes inherit the variables that lead to the server.
            environment["TRUNKLINE_FILES"] = await stack.enter_async_context(new_bucket())
        first, second = (
            KillableAgent(
                bridged.mesh, "files", command, tmp_path / name, stack, TESTS, environment
            )
            for name in ("machine-1", "machine-2")
        )
        await first.start()
        caller = bridged.at("/")
        message = caller.message("file 7 3")
        message["parts"].append({"raw": base64.b64encode(SENT).decode(), "filename": "sent.bin"})
        task = (await caller.call("SendMessage", {"message": message}))["task"]
        made, described = task["artifacts"][0]["parts"]
        assert described["text"] == f"{len(SENT)} {hashlib.sha256(SENT).hexdigest()}\n"
        sent = task["history"][0]["parts"][1]

        uploaded = bytes(range(255, -1, -1)) * 100_000
        client = ArtifactClient(bridged.mesh.directory, patience_s=60.0)
        async with asyncio.TaskGroup() as group:
            upload = group.create_task(client.upload(task["id"], "", uploaded))
            await poll(
                lambda: _count_stored(database), lambda stored_bytes: stored_bytes > 1_000_000
            )
            await first.kill()
            assert not upload.done()
            await second.start()

        expected = b"".join([piece async for piece in pieces(7, 3)])
        for part, content in ((made, expected), (sent, SENT)):
            answer = await poll(
                partial(bridged.client.get, part["url"]), lambda answer: answer.status_code == 200
            )
            assert isinstance(answer, httpx2.Response)
            assert answer.content == content
            ranged = await bridged.client.get(part["url"], headers={"range": "bytes=300000-300009"})
            assert ranged.content == content[300_000:300_010]
        # The upload that the first machine began was completed by the second.
        assert await _download(client, upload.result()) == uploaded
        if has_bucket:
            stored = await asyncio.to_thread(list_objects, environment["TRUNKLINE_FILES"])
            assert len(stored) >= 6
        for name in ("machine-1", "machine-2"):
            assert not list((tmp_path / name).rglob("*.artifacts"))


async def _count_stored(database: PostgresDatabase) -> int:
    """Return the number of stored bytes of the upload that is not complete."""
    row = await database.fetchrow("SELECT max(size_bytes) FROM trunkline_blobs WHERE sha256 = ''")
    return (row and row[0]) or 0


async def _download(client: ArtifactClient, part: part_pb2.Part) -> bytes:
    reference = parse_reference(part.url)
    assert reference is not None
    async with client.open(reference, account="") as download:
        content = b"".join([chunk async for chunk in download])
    assert read_member(part.metadata, "size_bytes") == len(content)
    return content
