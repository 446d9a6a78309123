"""Files over the bridge: URLs, ranges, uploads, references, and access control."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Json, open_bridged_mesh
from harness.agents import file_agent
from harness.mesh.small_mesh import PATIENCE_S
from harness.polling import poll
from trunkline import agent
from trunkline.core.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.v1 import part_pb2
from trunkline_bridge.callers.caller import CallerIdentity, SecurityRequirements, ServiceParameters

_CONTENT = bytes(range(256)) * 3000
_SHA256 = hashlib.sha256(_CONTENT).hexdigest()
_NAME = "Bericht „q3“.bin"


@agent(name="files", description="Makes files.", tags=["file"], input_modes=["*/*"])
async def _files(task: TaskContext) -> None:
    """Return the received file, or make one."""
    artifact = task.artifact(name="files")
    for part in task.message.parts:
        if not part.HasField("text"):
            content = await task.read(part)
            await artifact.append(f"{len(content)} {hashlib.sha256(content).hexdigest()}")
    if "file" in task.text:
        big = part_pb2.Part(raw=_CONTENT, filename=_NAME, media_type="application/x-test")
        await artifact.append(big)
    await artifact.close()


class _ByHeader:
    """Authenticates a caller by the account in a header."""

    security = SecurityRequirements()

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        return parameters.get(b"x-account") is not None

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        account = parameters.get(b"x-account") or "acme"
        return CallerIdentity(account, account, is_authenticated=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    folder = tmp_path_factory.mktemp("files")
    settings = Settings(default_agent="supervisor")
    async with open_bridged_mesh(folder, settings, access=_ByHeader()) as opened:
        await opened.mesh.join(_files)
        await opened.mesh.supervise()
        yield opened


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _made(bridged: BridgedMesh, path: str = "/agents/files") -> Json:
    """Make a file; return the part with its URL."""
    task = await bridged.at(path).send("make a file")
    (file_part,) = _answer_files(task["artifacts"])
    return file_part


def _answer_files(artifacts: Iterable[Json]) -> list[Json]:
    """Return the files of the answer. Those of a supervisor's agents are in the stream, too."""
    return [
        part
        for artifact in artifacts
        if artifact.get("metadata", {}).get("trunkline/role") == "answer"
        for part in artifact["parts"]
        if "url" in part
    ]


async def _get(bridged: BridgedMesh, url: str, **headers: str) -> httpx2.Response:
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    async with asyncio.timeout(PATIENCE_S):
        return await bridged.client.get(url, headers=header_fields)


async def test_a_file_is_a_url_also_through_a_supervisor(bridged: BridgedMesh) -> None:
    for path in ("/agents/files", "/"):
        part = await _made(bridged, path)
        assert part["url"].startswith(f"{bridged.url}/artifacts/")
        assert (part["filename"], part["mediaType"]) == (_NAME, "application/x-test")
        assert part["metadata"] == {"sha256": _SHA256, "size_bytes": len(_CONTENT)}

        answer = await _get(bridged, part["url"])

        assert (answer.status_code, answer.content) == (200, _CONTENT)
        headers = answer.headers
        assert headers["content-type"] == "application/x-test"
        assert headers["content-disposition"] == (
            'attachment; filename="Bericht _q3_.bin"; '
            "filename*=UTF-8''Bericht%20%E2%80%9Eq3%E2%80%9C.bin"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["etag"] == f'"{_SHA256}"'
        digest = base64.b64encode(bytes.fromhex(_SHA256)).decode()
        assert headers["repr-digest"] == f"sha-256=:{digest}:"


async def test_ranges_follow_rfc_9110(bridged: BridgedMesh) -> None:
    url, size = (await _made(bridged))["url"], len(_CONTENT)
    for header, begin, end in (
        ("bytes=0-9", 0, 10),
        ("bytes=700000-", 700_000, size),
        ("bytes=-20", size - 20, size),
        (f"bytes=5-{size * 2}", 5, size),
    ):
        answer = await _get(bridged, url, range=header)
        assert (answer.status_code, answer.content) == (206, _CONTENT[begin:end])
        assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/{size}"
    for header in ("bytes=0-1,5-6", "lines=1-2", "bytes=9-1", "bytes=-"):
        assert (await _get(bridged, url, range=header)).status_code == 200

    etag = f'"{_SHA256}"'
    assert (await _get(bridged, url, range="bytes=0-9", if_range=etag)).status_code == 206
    assert (await _get(bridged, url, range="bytes=0-9", if_range='"other"')).status_code == 200
    assert (await _get(bridged, url, if_none_match=etag)).status_code == 304
    answer = await _get(bridged, url, range=f"bytes={size}-")
    assert (answer.status_code, answer.headers["content-range"]) == (416, f"bytes */{size}")


async def test_conditions_are_evaluated_in_the_order_of_rfc_9110(bridged: BridgedMesh) -> None:
    url, etag = (await _made(bridged))["url"], f'"{_SHA256}"'
    for header in (etag, "*", f'"other", {etag}'):
        answer = await _get(bridged, url, if_match=header, range="bytes=0-9", if_range=etag)
        assert (answer.status_code, answer.content) == (206, _CONTENT[:10])
    # A weak tag never matches in If-Match.
    for header in ('"other"', f"W/{etag}", ""):
        answer = await _get(bridged, url, if_match=header, if_none_match=etag)
        assert answer.status_code == 412
        assert (answer.headers["etag"], answer.json()["error"]["code"]) == (etag, 412)
        assert (await bridged.client.head(url, headers={"if-match": header})).status_code == 412
    assert (await _get(bridged, url, if_match=etag, if_none_match=etag)).status_code == 304
    weak = await _get(bridged, url, range="bytes=0-9", if_range=f"W/{etag}")
    dated = await _get(bridged, url, range="bytes=0-9", if_range="Wed, 21 Oct 2026 07:28:00 GMT")
    assert (weak.status_code, dated.status_code) == (200, 200)
    whole = await bridged.client.head(url, headers={"range": "bytes=0-9"})
    assert (whole.status_code, whole.headers["content-length"]) == (200, str(len(_CONTENT)))


async def test_head_returns_the_headers_of_get(bridged: BridgedMesh) -> None:
    url = (await _made(bridged))["url"]
    answer = await bridged.client.head(url)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == str(len(_CONTENT))
    assert answer.headers["accept-ranges"] == "bytes"
    answer = await bridged.client.post(url)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_a_file_is_visible_only_to_its_account(bridged: BridgedMesh) -> None:
    url = (await _made(bridged))["url"]
    missing = f"{bridged.url}/artifacts/none-1/x/y"
    for answer in (
        await _get(bridged, url, x_account="others"),
        await _get(bridged, missing),
        await _get(bridged, f"{bridged.url}/artifacts/..%2f..%2fetc/passwd/x"),
        await _get(bridged, url.replace("/artifacts/", "/artifacts/%2e%2e%2f")),
    ):
        assert answer.status_code == 404
        assert answer.json()["error"]["message"].startswith("no such file;")


@pytest.mark.parametrize("name", ["reports/q3.csv", "../..", ".", 'a"\r\nb?#.csv', "é" * 300])
async def test_a_file_of_any_name_is_found(bridged: BridgedMesh, name: str) -> None:
    caller = bridged.at("/agents/files")
    message = caller.message("look")
    message["parts"].append({"raw": base64.b64encode(_CONTENT).decode(), "filename": name})
    task = (await caller.call("SendMessage", {"message": message}))["task"]
    assert task["artifacts"][0]["parts"][0]["text"] == f"{len(_CONTENT)} {_SHA256}"
    parts_shown = task["history"][0]["parts"][1]
    assert parts_shown["filename"] == name

    answer = await _get(bridged, parts_shown["url"])

    assert (answer.status_code, answer.content) == (200, _CONTENT)


async def test_the_url_of_a_file_can_be_sent_back(bridged: BridgedMesh) -> None:
    part = await _made(bridged)
    caller = bridged.at("/agents/files")
    message = caller.message("look")
    message["parts"].append({"url": part["url"]})
    task = (await caller.call("SendMessage", {"message": message}))["task"]
    assert task["artifacts"][0]["parts"][0]["text"] == f"{len(_CONTENT)} {_SHA256}"


async def test_nothing_is_fetched_from_private_addresses(bridged: BridgedMesh) -> None:
    caller = bridged.at("/agents/files")
    for url in ("http://127.0.0.1:1/x", "https://169.254.169.254/latest", "file:///etc/passwd"):
        message = caller.message("look")
        message["parts"].append({"url": url})
        task = (await caller.call("SendMessage", {"message": message}))["task"]
        assert task["status"]["state"] == "TASK_STATE_FAILED"
        assert "part.url: must" in task["status"]["message"]["parts"][0]["text"]


async def test_older_versions_have_the_url_in_their_fields(bridged: BridgedMesh) -> None:
    caller = bridged.at("/agents/files")
    message: Json = {
        "kind": "message",
        "messageId": "m-old",
        "role": "user",
        "parts": [{"kind": "text", "text": "make a file"}],
    }
    task = await caller.call("message/send", {"message": message})
    parts_shown = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    (file,) = (part["file"] for part in parts_shown if part["kind"] == "file")
    assert (file["name"], file["mimeType"]) == (_NAME, "application/x-test")
    assert (await _get(bridged, file["uri"])).content == _CONTENT

    first = {"role": "user", "parts": [{"type": "text", "text": "make a file"}]}
    task = await caller.call("tasks/send", {"id": "old-1", "message": first})
    parts_shown = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    (file,) = (part["file"] for part in parts_shown if part["type"] == "file")
    assert (await _get(bridged, file["uri"])).content == _CONTENT


async def test_a_file_whose_host_died_ends_early_and_is_resumed_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = b"".join([piece async for piece in file_agent.pieces(3, 30)])
    settings = Settings(default_agent="files", patience_s=0.3)
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path, settings) as bridged:
        host = await bridged.mesh.join(file_agent.files)
        task = await bridged.at("/").send("file 3 30")
        url = task["artifacts"][0]["parts"][0]["url"]
        read = bytearray()

        async def read_rest() -> None:
            async with bridged.client.stream("GET", url) as response:
                async for piece in response.aiter_raw():
                    if not read:
                        await host.cut()
                    read.extend(piece)

        with pytest.raises(httpx2.RemoteProtocolError):
            await read_rest()
        assert len(read) < len(expected)
        assert [record.levelname for record in caplog.records if "ASGI" in record.message] == []

        await host.serve_again()
        # The bridge's timeout is short here, and its channel may be in its reconnect backoff.
        answer = await poll(
            partial(_get, bridged, url, range=f"bytes={len(read)}-"),
            lambda answer: answer.status_code != 503,
        )
        assert answer.status_code == 206
        assert bytes(read) + answer.content == expected
