"""Large content is stored outside the events, moved in chunks, and readable by its account only."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline import agent
from trunkline.core.json_values import read_member, update_struct
from trunkline.errors import (
    ArtifactNotFoundError,
    InvalidArgumentError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.artifacts import Reference, parse_reference
from trunkline.mesh.client import ArtifactClient
from trunkline.tasks.context import TaskContext
from trunkline.tasks.files import sweep_once
from trunkline.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
)

_BIG = bytes(range(256)) * 2000
_SHA256 = hashlib.sha256(_BIG).hexdigest()


@agent(name="maker", description="Makes files.", output_modes=["*/*"])
async def _maker(task: TaskContext) -> None:
    artifact = task.artifact(name="files")
    await artifact.append(part_pb2.Part(raw=_BIG, media_type="a/b", filename="raw.bin"))
    await artifact.append(part_pb2.Part(raw=b"small"))

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield _BIG

    await artifact.attach(pieces(), filename="pieces.csv", last=True)


@agent(name="reader", description="Reads files.", input_modes=["*/*"])
async def _reader(task: TaskContext) -> str:
    contents = [await task.read(part) for part in task.message.parts]
    kinds = [part.WhichOneof("content") for part in task.message.parts]
    return " ".join(f"{kind}:{len(content)}" for kind, content in zip(kinds, contents, strict=True))


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    async with open_small_mesh(tmp_path) as opened:
        await opened.join(_maker)
        await opened.join(_reader)
        yield opened


@agent(name="tabulator", description="Writes a table.", output_modes=["*/*"])
async def _tabulator(task: TaskContext) -> None:
    part = part_pb2.Part()
    update_struct(part.data.struct_value, {"name": "Zoë", "count": 2})
    await task.artifact(name="table").append(part, last=True)


async def _download(mesh: SmallMesh, part: part_pb2.Part, **where: int) -> bytes:
    reference = parse_reference(part.url)
    assert reference is not None
    async with ArtifactClient(mesh.directory).open(reference, account="", **where) as download:
        return b"".join([chunk async for chunk in download])


async def _send(mesh: SmallMesh, *parts: part_pb2.Part, account: str = "") -> str:
    message = mesh.message("")
    del message.parts[:]
    message.parts.extend(parts)
    answer = await mesh.client("reader").send_message(
        agent="reader",
        message=message,
        submission=message_service_pb2.Submission(account=account),
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    task = answer.task
    return task.artifacts[0].parts[0].text if task.artifacts else task.status.message.parts[0].text


async def test_large_content_is_stored_outside_the_journal_and_read_from_any_offset(
    mesh: SmallMesh,
) -> None:
    snapshot = await mesh.ask("", agent="maker")

    raw, small, pieces = snapshot.task.artifacts[0].parts
    assert read_member(raw.metadata, "sha256") == _SHA256
    assert (read_member(raw.metadata, "size_bytes"), raw.media_type, raw.filename) == (
        len(_BIG),
        "a/b",
        "raw.bin",
    )
    assert small.raw == b"small"
    assert (pieces.media_type, pieces.filename) == ("text/csv", "pieces.csv")
    assert await _download(mesh, raw) == _BIG
    assert await _download(mesh, raw, offset=400_000, length=20) == _BIG[400_000:400_020]
    assert await _download(mesh, pieces, offset=len(_BIG) * 3) == _BIG
    with pytest.raises(InvalidArgumentError, match="behind the end"):
        await _download(mesh, raw, offset=len(_BIG) + 1)


async def test_files_are_readable_by_their_account_only(mesh: SmallMesh) -> None:
    snapshot = await mesh.ask("", agent="maker")
    part = snapshot.task.artifacts[0].parts[0]
    reference = parse_reference(part.url)
    assert reference is not None
    client = ArtifactClient(mesh.directory)

    with pytest.raises(TaskNotFoundError):
        async with client.open(reference, account="others"):
            pass
    with pytest.raises(ArtifactNotFoundError):
        async with client.open(reference._replace(blob_id="none"), account=""):
            pass
    with pytest.raises(TaskNotFoundError):
        await client.upload(snapshot.task.id, "others", b"x")
    # An agent can't read them for another account either.
    assert "no task" in await _send(mesh, part, account="others")


async def test_an_agent_reads_inline_and_stored_parts(mesh: SmallMesh) -> None:
    snapshot = await mesh.ask("", agent="maker")

    reply = await _send(
        mesh,
        part_pb2.Part(raw=b"small"),
        part_pb2.Part(raw=_BIG),
        snapshot.task.artifacts[0].parts[2],
        part_pb2.Part(text="four"),
    )

    assert reply == f"raw:5 url:{len(_BIG)} url:{4 * len(_BIG)} text:4"


async def test_bytes_files_and_pieces_are_uploaded_completely(
    mesh: SmallMesh, tmp_path: Path
) -> None:
    task_id = (await mesh.ask("", agent="maker")).task.id
    client = ArtifactClient(mesh.directory)
    path = tmp_path / "given"
    path.write_bytes(_BIG)

    async def pieces() -> AsyncIterator[bytes]:
        yield _BIG[:5]
        yield _BIG[5:]

    for content in (_BIG, path, pieces()):
        part = await client.upload(task_id, "", content, media_type="a/b", filename="n")
        assert read_member(part.metadata, "sha256") == _SHA256
        assert await _download(mesh, part) == _BIG


async def test_an_interrupted_download_resumes(tmp_path: Path) -> None:
    async with open_small_mesh(tmp_path) as mesh:
        host = await mesh.join(_maker)
        part = (await mesh.ask("", agent="maker")).task.artifacts[0].parts[2]
        reference = parse_reference(part.url)
        assert reference is not None
        contents = bytearray()
        async with ArtifactClient(mesh.directory).open(reference, account="") as download:
            async for chunk in download:
                if not contents:
                    await host.cut()
                    await host.serve_again()
                contents += chunk

    assert bytes(contents) == _BIG * 4


async def test_files_are_deleted_with_their_tasks_and_not_earlier(tmp_path: Path) -> None:
    async with open_small_mesh(tmp_path) as mesh:
        joined = await mesh.join(_maker)
        task_id = (await mesh.ask("", agent="maker")).task.id
        host = joined.host.journals.primary
        blobs = await joined.host.blobs(task_id, account="")
        orphan = Reference.new(f"{host.journal.id}-gone")
        await blobs.put(orphan, b"of a task that was deleted")
        files, executions = host.files, host.executions

        suspects = await sweep_once(files, executions.has, set())
        assert orphan.task_id in await blobs.list_task_ids()
        assert await sweep_once(files, executions.has, suspects) == set()

        assert await blobs.list_task_ids() == [task_id]


async def test_a_repeated_message_with_a_file_is_one_task(mesh: SmallMesh) -> None:
    message = message_pb2.Message(message_id="same", role=message_pb2.ROLE_USER)
    message.parts.add(raw=_BIG)
    submission = message_service_pb2.Submission(idempotent=True)
    client = mesh.client("reader")

    answers = [
        await client.send_message(agent="reader", message=message, submission=submission)
        for _ in range(2)
    ]

    first, second = (answer for answer in answers if isinstance(answer, snapshot_pb2.TaskSnapshot))
    assert first.task.id == second.task.id


async def test_an_upload_whose_connection_ends_is_cut(tmp_path: Path) -> None:
    """GRPC may report a failed write in place of the end of the connection."""
    async with open_small_mesh(tmp_path) as mesh:
        host = await mesh.join(_maker)
        task_id = (await mesh.ask("", agent="maker")).task.id
        client = ArtifactClient(mesh.directory)

        async def pieces() -> AsyncIterator[bytes]:
            yield _BIG
            async with asyncio.TaskGroup() as group:
                group.create_task(host.cut())
                for _ in range(20):
                    yield _BIG

        for _ in range(10):
            with pytest.raises(PeerUnavailableError):
                await client.upload(task_id, "", pieces())
            await host.serve_again()


def _stub(mesh: SmallMesh, task_id: str) -> "artifact_service_pb2_grpc.ArtifactServiceAsyncStub":
    return artifact_service_pb2_grpc.ArtifactServiceStub(mesh.directory.channel_for_task(task_id))


async def test_an_incomplete_upload_resumes_at_the_reported_size(mesh: SmallMesh) -> None:
    task_id = (await mesh.ask("", agent="maker")).task.id
    stub = _stub(mesh, task_id)
    begin = artifact_service_pb2.UploadArtifactRequest(task_id=task_id, artifact_id="mine")

    async def upload(
        *pieces: tuple[int, bytes], sha256: str = ""
    ) -> artifact_service_pb2.UploadArtifactResponse:
        async def requests() -> AsyncIterator[artifact_service_pb2.UploadArtifactRequest]:
            yield begin
            for offset, data in pieces:
                yield artifact_service_pb2.UploadArtifactRequest(offset=offset, data=data)
            yield artifact_service_pb2.UploadArtifactRequest(sha256=sha256)

        return await stub.UploadArtifact(requests())

    partial = await upload((0, _BIG[:200_000]))
    assert (partial.size_bytes, partial.url) == (200_000, "")
    assert (await upload()).size_bytes == 200_000
    rest = [(at, _BIG[at : at + 200_000]) for at in range(200_000, len(_BIG), 200_000)]
    complete = await upload(*rest, sha256=_SHA256)
    assert (complete.size_bytes, complete.sha256) == (len(_BIG), _SHA256)
    assert (await upload()).url == complete.url
    assert await _download(mesh, part_pb2.Part(url=complete.url)) == _BIG


async def test_parts_of_artifacts_are_read_by_their_index_too(mesh: SmallMesh) -> None:
    task_id = (await mesh.ask("", agent="maker")).task.id
    stub = _stub(mesh, task_id)
    page = await stub.ListArtifacts(
        artifact_service_pb2.ListArtifactsRequest(task_id=task_id, page_size=1)
    )
    (artifact,) = page.artifacts
    assert page.next_page_token == ""
    assert [part.WhichOneof("content") for part in artifact.parts] == ["url", None, "url"]

    for index, content in ((0, _BIG), (1, b"small"), (2, _BIG * 4)):
        request = artifact_service_pb2.DownloadArtifactRequest(
            task_id=task_id, artifact_id=artifact.artifact_id, part=index
        )
        responses = [response async for response in stub.DownloadArtifact(request)]
        assert b"".join(response.data for response in responses) == content
        assert responses[0].sha256 == hashlib.sha256(content).hexdigest()
        assert max(len(response.data) for response in responses) <= 256 * 1024


async def test_a_data_part_is_read_as_json_text(mesh: SmallMesh) -> None:
    await mesh.join(_tabulator)
    task = (await mesh.ask("", agent="tabulator")).task
    request = artifact_service_pb2.DownloadArtifactRequest(
        task_id=task.id, artifact_id=task.artifacts[0].artifact_id
    )

    responses = [response async for response in _stub(mesh, task.id).DownloadArtifact(request)]

    content = b"".join(response.data for response in responses)
    assert json.loads(content) == {"name": "Zoë", "count": 2}
    assert responses[0].media_type == "application/json"
    assert responses[0].size_bytes == len(content)
