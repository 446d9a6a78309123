"""A mesh with an encryption key: no file shows content, and the key changes while it streams."""

import asyncio
import contextlib
import io
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.sse_client import SseResponse, sse, user_message
from harness.journal.protected import new_key
from harness.polling import wait_for
from harness.remote.webhook_receiver import open_receiver
from trunkline import TaskContext, agent
from trunkline.cli.commands.data import back_up_data
from trunkline.core.database import open_read_only
from trunkline.core.encryption import read_keyring, rewrap
from trunkline.core.settings import HostPort, MeshAddress, Settings
from trunkline.journal.sqlite.check import check_journal
from trunkline.processes.all_in_one import open_mesh
from trunkline.v1 import part_pb2
from trunkline_agents.research.commands import add_paths

SECRET = "patient-4711"


class Stop:
    """Tells the agent to end."""

    event: asyncio.Event


@agent(name="ticker", description="Streams numbers until the test ends it.")
async def ticker(task: TaskContext) -> None:
    content = task.text.encode() * 10_000
    file = part_pb2.Part(raw=content, filename=task.text)
    await task.artifact(name="file").append(file, last=True)
    answer = task.artifact(name="answer")
    for number in itertools.count():
        await answer.append(f"{number} ")
        if Stop.event.is_set():
            break
        await asyncio.sleep(0.002)
    await answer.append(f"end of {task.text}", last=True)


def find_plain_text(folder: Path) -> list[str]:
    """Return the files that have the secret in their content or their name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 5
    return [
        str(path) for path in files if SECRET.encode() in path.read_bytes() or SECRET in path.name
    ]


async def texts(response: SseResponse) -> AsyncIterator[str]:
    """Yield the texts of artifacts."""
    async for event in response.events():
        artifact = event.result.get("artifactUpdate", {}).get("artifact", {})
        for part in artifact.get("parts", []):
            if "text" in part:
                yield part["text"]


async def test_no_file_shows_content_and_the_key_changes_while_a_task_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, key_file = tmp_path / "data", tmp_path / "key"
    old, new = new_key(), new_key()
    Stop.event = asyncio.Event()

    def configure(*keys: str) -> None:
        key_file.write_text(" ".join(keys))
        key_file.chmod(0o600)

    configure(old)
    monkeypatch.setenv("TRUNKLINE_ENCRYPTION_KEY_FILE", str(key_file))
    here = HostPort("127.0.0.1", 0)
    settings = Settings(
        data_dir=data,
        encryption_key_file=key_file,
        lease_s=0.5,
        agents=(f"{__name__}:ticker",),
        allow_webhook=("127.0.0.1",),
        http=here,
        a2a_grpc=here,
        mesh=MeshAddress((here,)),
    )
    add_document(tmp_path, data)
    async with open_receiver() as receiver, open_mesh(settings) as mesh:
        url = mesh.endpoints[0]["http"]
        webhook = {"url": f"{receiver.url}?of={SECRET}", "token": f"token of {SECRET}"}
        params = {
            "message": user_message(SECRET),
            "configuration": {"taskPushNotificationConfig": webhook},
        }
        async with sse(url, "/agents/ticker", "SendStreamingMessage", params) as response:
            stream = texts(response)
            text = await anext(stream)
            configure(new, old)
            rewrap(settings, with_new_data_key=False)
            configure(new)
            new_id = rewrap(settings, with_new_data_key=True).data_keys[-1].id
            (path,) = (data / "journals").glob("*.db")
            await wait_for(lambda: key_in_use(path) == new_id)
            text += await anext(stream)
            Stop.event.set()
            text += "".join([piece async for piece in stream])
        numbers, _, end = text.partition("end of ")
        assert end == SECRET
        assert numbers.split() == [str(number) for number in range(len(numbers.split()))]
        await receiver.until(lambda posts: bool(posts.accepted))
        assert find_plain_text(data) == []
    assert find_plain_text(data) == []
    report = check_journal(path, read_keyring(settings))
    assert (report.problems, report.plain_count) == ([], 0)
    with contextlib.redirect_stdout(io.StringIO()):
        back_up_data(tmp_path / "copy", data, json=True)
    assert find_plain_text(tmp_path / "copy") == []


def add_document(folder: Path, data: Path) -> None:
    document = folder / f"{SECRET}.md"
    document.write_text(f"# About {SECRET}\n\nThe record of {SECRET}.\n")
    with contextlib.redirect_stdout(io.StringIO()):
        add_paths([document], data, json=True)


def key_in_use(path: Path) -> int:
    """Return the id of the data key that a journal is written with."""
    with open_read_only(path) as connection:
        ((key_id,),) = connection.execute("SELECT data_key FROM meta")
    return int(key_id)
