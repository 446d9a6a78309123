"""Encodes file content in v0.3's protobuf messages as the client expects it.

The schema has a `bytes` field for the content. The SDKs in Python and Go write and read only base64
in it; other clients use raw bytes. The user agent shows which. Messages inside the bridge contain
base64.
"""

import base64
import re
from collections.abc import Iterator

from google.protobuf.message import Message

from trunkline.a2a.v0_3 import task_pb2

_PACKAGE = f"{task_pb2.DESCRIPTOR.package}."
# The user agents of the HTTP and gRPC clients of the two SDKs, and of our client.
_BASE64_IN_BYTES = re.compile(r"python-httpx|grpc-python|Go-http-client|grpc-go|Trunkline")


def uses_raw_file_bytes(user_agent: str) -> bool:
    """Return whether a client sends and expects raw bytes instead of base64."""
    return _BASE64_IN_BYTES.search(user_agent) is None


def encode_file_bytes(message: Message) -> None:
    """Encode the raw files of a client's message as base64, in place."""
    for file in _find_files(message):
        file.file_with_bytes = base64.b64encode(file.file_with_bytes)


def decode_file_bytes(message: Message) -> None:
    """Decode the base64 files of a message to raw bytes, in place."""
    for file in _find_files(message):
        file.file_with_bytes = base64.b64decode(file.file_with_bytes)


def _find_files(message: Message) -> Iterator[task_pb2.FilePart]:
    """Yield the files with content at any depth of a message."""
    if isinstance(message, task_pb2.FilePart):
        if message.WhichOneof("file") == "file_with_bytes":
            yield message
        return
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or not _is_a2a(inner.full_name):
            continue
        for nested in value if field.is_repeated else (value,):
            yield from _find_files(nested)


def _is_a2a(name: str) -> bool:
    return name.startswith(_PACKAGE)
