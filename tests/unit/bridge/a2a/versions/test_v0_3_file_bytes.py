"""File content in v0.3's protobuf messages, which SDKs encode differently."""

import base64

import pytest

from trunkline.a2a.v0_3 import a2a_pb2
from trunkline.a2a_wire.v0_3.file_bytes import (
    decode_file_bytes,
    encode_file_bytes,
    uses_raw_file_bytes,
)
from trunkline.core.json_values import update_struct

CONTENT = b"\x00\xff text"


def events() -> a2a_pb2.StreamResponse:
    """Return a task event with files in all places."""
    result = a2a_pb2.StreamResponse()
    update_struct(result.task.metadata, {"key": {"a": [1]}})
    for message in (result.task.history.add(), result.task.status.update):
        message.content.add().text = "see"
        message.content.add().file.file_with_bytes = CONTENT
    result.task.artifacts.add().parts.add().file.file_with_bytes = CONTENT
    result.task.artifacts[0].parts.add().file.file_with_uri = "https://example.org/x"
    return result


def contents(event: a2a_pb2.StreamResponse) -> list[bytes]:
    task = event.task
    parts = [task.history[0].content[1], task.status.update.content[1], task.artifacts[0].parts[0]]
    return [part.file.file_with_bytes for part in parts]


def test_all_files_are_encoded_and_nothing_else() -> None:
    event, before = events(), events()
    encode_file_bytes(event)
    assert contents(event) == [base64.b64encode(CONTENT)] * 3
    decode_file_bytes(event)
    assert event == before


@pytest.mark.parametrize(
    "agent",
    [
        "python-httpx/0.28.1",
        "grpc-python-asyncio/1.85.1",
        "grpc-go/1.70",
        "Go-http-client/1.1",
    ],
)
def test_sdks_that_send_base64_get_base64(agent: str) -> None:
    assert not uses_raw_file_bytes(agent)
