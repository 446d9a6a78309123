"""Malformed requests get a clear error with their id, if readable; the next request succeeds."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo

LIMIT_BYTES = 20_000
SEND = {
    "jsonrpc": "2.0",
    "id": "r-1",
    "method": "SendMessage",
    "params": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}},
}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="echo", body_limit_bytes=LIMIT_BYTES)
    async with open_bridged_mesh(tmp_path_factory.mktemp("errors"), settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found

    @property
    def request_id(self) -> object:
        return json.loads(self.body)["id"]


class Wire:
    """A raw socket to the bridge, which sends anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def answer(self) -> Answer:
        async with asyncio.timeout(PATIENCE_S):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            pairs = [line.split(": ", 1) for line in head[1:] if line]
            headers = {name.lower(): value for name, value in pairs}
            body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(head[0].split()[1]), headers, body)


async def dial(bridged: BridgedMesh) -> Wire:
    address = urlsplit(bridged.url)
    return Wire(*await asyncio.open_connection(address.hostname, address.port))


async def exchange(bridged: BridgedMesh, body: bytes, *headers: str, path: str = "/") -> Answer:
    """Send a body unchanged and read the answer."""
    wire = await dial(bridged)
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    wire.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
    answer = await wire.answer()
    wire.writer.close()
    await wire.writer.wait_closed()
    return answer


def request(**changes: object) -> bytes:
    return json.dumps({**SEND, **changes}).encode()


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"", -32700, None),
        (b"{nope", -32700, None),
        (b"\xff\xfe\x00", -32700, None),
        (request() + b"}", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageSize":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700, None),
        (b"[" * 9000, -32700, None),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, -32700, None),
        (b"null", -32600, None),
        (b"[" + request() + b"]", -32600, None),
        (request(jsonrpc="1.0"), -32600, "r-1"),
        (request(id=True), -32600, None),
        (request(id={"a": 1}), -32600, None),
        (request(id=[]), -32600, None),
        (request(jsonrpc=2.0), -32600, "r-1"),
        (b"[]", -32600, None),
        (b'"text"', -32600, None),
        (b"{}", -32600, None),
        (request(method=None), -32600, "r-1"),
        (request(method=5), -32600, "r-1"),
        (request(method=""), -32600, "r-1"),
        (b'{"method":"ListTasks"}', -32600, None),
        (request(method="Nope"), -32601, "r-1"),
        (request(id=7, method="tasks/list"), -32601, 7),
        (request(method="DoMagic", params=None), -32601, "r-1"),
        (request(params="text"), -32602, "r-1"),
        (request(params=[1]), -32602, "r-1"),
        (request(params={}), -32602, "r-1"),
        (request(params={"message": "hi"}), -32602, "r-1"),
        (request(id=None, params={"message": {"messageId": "m", "parts": []}}), -32602, None),
        (request(method="ListTasks", params={"pageSize": 1000}), -32602, "r-1"),
        (request(method="ListTasks", params={"status": "busy"}), -32602, "r-1"),
        (request(method="GetTask", params={"id": "nope"}), -32001, "r-1"),
        (request(method="GetTask", params={"id": "x" * 10_000}), -32001, "r-1"),
    ],
)
async def test_a_bad_request_gets_its_error_and_the_next_is_served(
    bridged: BridgedMesh, body: bytes, code: int, request_id: object
) -> None:
    answer = await exchange(bridged, body)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert (answer.error["code"], answer.request_id) == (code, request_id)
    details = answer.error["data"]
    assert details[0]["domain"] == "a2a-protocol.org"
    again = await exchange(bridged, request())
    assert json.loads(again.body)["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.parametrize("request_id", [0, -5, 2**80, 1.5, 1e300, "", "é", None])
async def test_an_id_comes_back_with_its_type(bridged: BridgedMesh, request_id: object) -> None:
    answer = await exchange(bridged, request(id=request_id, method="ListTasks", params={}))
    assert answer.request_id == request_id
    assert type(answer.request_id) is type(request_id)
    assert "result" in json.loads(answer.body)


async def test_the_error_for_an_old_method_names_its_successor(bridged: BridgedMesh) -> None:
    answer = await exchange(bridged, request(method="tasks/list"))
    assert "ListTasks" in answer.error["message"]


async def test_the_error_for_an_unknown_agent_has_the_request_s_id(bridged: BridgedMesh) -> None:
    answer = await exchange(bridged, request(), path="/agents/nobody")
    assert (answer.error["code"], answer.request_id) == (-32602, "r-1")
    assert "'nobody'" in answer.error["message"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(bridged: BridgedMesh) -> None:
    wire = await dial(bridged)
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LIMIT_BYTES + 1}\r\n\r\n"
    wire.writer.write(head.encode())
    answer = await wire.answer()
    assert answer.status == 413
    assert answer.error["code"] == -32600
    assert str(LIMIT_BYTES) in answer.error["message"]
    wire.writer.close()


async def test_a_client_that_sends_the_body_anyway_still_reads_the_refusal(
    bridged: BridgedMesh,
) -> None:
    body = request(padding="x" * 30 * LIMIT_BYTES)
    answer = await bridged.client.post(bridged.url + "/", content=body)
    assert answer.status_code == 413


async def test_a_body_in_chunks_is_refused_when_it_passes_the_limit(bridged: BridgedMesh) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    answer = await bridged.client.post(bridged.url + "/", content=chunks())
    assert answer.status_code == 413


async def test_a_body_of_exactly_the_limit_is_served(bridged: BridgedMesh) -> None:
    body = request()
    answer = await exchange(bridged, body + b" " * (LIMIT_BYTES - len(body)))
    assert answer.status == 200
    assert "result" in json.loads(answer.body)


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/a2a+json", ""]
)
async def test_every_json_media_type_is_accepted(bridged: BridgedMesh, kind: str) -> None:
    answer = await exchange(bridged, request(), f"Content-Type: {kind}")
    assert answer.status == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data"])
async def test_other_media_types_are_refused(bridged: BridgedMesh, kind: str) -> None:
    answer = await exchange(bridged, request(), f"Content-Type: {kind}")
    assert (answer.status, answer.request_id) == (415, "r-1")
    assert kind in answer.error["message"]


async def test_a_cross_site_page_cannot_omit_the_media_type(bridged: BridgedMesh) -> None:
    answer = await exchange(bridged, request(), "Origin: https://elsewhere.example")
    assert answer.status == 415
    json_type = "Content-Type: application/json"
    same_origin = await exchange(bridged, request(), "Origin: https://elsewhere.example", json_type)
    assert same_origin.status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 405),
        ("PUT", "/agents/echo", 405),
        ("GET", "/nowhere", 404),
        ("POST", "/agents", 404),
        ("POST", "/agents/echo/more", 404),
        ("POST", "/healthz", 405),
    ],
)
async def test_other_paths_and_methods_are_not_served(
    bridged: BridgedMesh, method: str, path: str, status: int
) -> None:
    answer = await bridged.client.request(method, bridged.url + path, content=b"{}")
    assert answer.status_code == status
    error = answer.json()["error"]
    names = {404: "NOT_FOUND", 405: "UNIMPLEMENTED"}
    assert (error["code"], error["status"]) == (status, names[status])
    assert error["details"][0]["domain"] == "a2a-protocol.org"


async def test_a_path_that_accepts_posts_allows_them(bridged: BridgedMesh) -> None:
    answer = await bridged.client.get(bridged.url + "/")
    assert answer.headers["allow"] == "POST"
    assert "GET is not served here; send POST" in answer.json()["error"]["message"]


async def test_text_of_every_script_comes_back_unchanged(bridged: BridgedMesh) -> None:
    text = 'héllo 你好 \U0001f680 \u2028 \x00 \\ " \x7f \u202e'
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": f"echo {text}"}]}
    answer = await exchange(bridged, request(params={"message": message}))
    result = json.loads(answer.body)["result"]
    assert result["task"]["artifacts"][0]["parts"] == [{"text": text}]
    assert "你好".encode() in answer.body


async def test_parts_of_every_kind_come_back_unchanged(bridged: BridgedMesh) -> None:
    parts = [
        {"raw": "AAEC/w==", "filename": "a.bin", "mediaType": "application/x-test"},
        {"url": "https://example.org/x", "metadata": {"k": [1, 2.5, None]}},
        {"data": {"n": 7, "deep": [[{"a": None}]]}},
        {"data": None},
        {"data": "text"},
    ]
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo x"}, *parts]}
    answer = await exchange(bridged, request(params={"message": message}))
    task = json.loads(answer.body)["result"]["task"]
    assert task["artifacts"][0]["parts"] == [{"text": "x"}, *parts]
    assert task["history"][0]["parts"][1:] == parts
