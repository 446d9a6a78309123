"""The content of files in A2A v0.3's protobuf data, on which its SDKs disagree.

The schema has bytes, and everybody who goes by it puts the content itself there. The SDKs in Python
and Go put base64 into them and can't read anything else: they are known by their user agent.
Messages here are as those have them; for all others they are turned.
"""

import base64
import re
from collections.abc import Iterator

from google.protobuf.message import Message

from trunkline.a2a.v0_3 import task_pb2

_PACKAGE = f"{task_pb2.DESCRIPTOR.package}."
# What the two SDKs speak by: httpx and gRPC's own clients; and what we ourselves speak to them by.
_BASE64_IN_BYTES = re.compile(r"python-httpx|grpc-python|Go-http-client|grpc-go|Trunkline")


def uses_raw_file_bytes(user_agent: str) -> bool:
    """Whether a client puts content into files as it is, and wants it so."""
    return _BASE64_IN_BYTES.search(user_agent) is None


def encode_file_bytes(message: Message) -> None:
    """Turn the files of such a client's message into those of the others."""
    for file in _find_files(message):
        file.file_with_bytes = base64.b64encode(file.file_with_bytes)


def decode_file_bytes(message: Message) -> None:
    """Turn the files of a message for such a client."""
    for file in _find_files(message):
        file.file_with_bytes = base64.b64decode(file.file_with_bytes)


def _find_files(message: Message) -> Iterator[task_pb2.FilePart]:
    """Yield the files with content, wherever they are."""
    if isinstance(message, task_pb2.FilePart):
        if message.WhichOneof("file") == "file_with_bytes":
            yield message
        return
    for field, value in message.ListFields():
        inner = field.message_type
        if inner is None or inner.GetOptions().map_entry or not _is_ours(inner.full_name):
            continue
        for one in value if field.is_repeated else (value,):
            yield from _find_files(one)


def _is_ours(name: str) -> bool:
    return name.startswith(_PACKAGE)
