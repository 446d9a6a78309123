"""Files as a remote agent gets them: what the mesh keeps goes along as bytes, URLs as they are."""

from collections.abc import Iterable
from typing import Final

from trunkline import TaskContext
from trunkline.client.artifacts import find_reference
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import part_pb2

# In base64 that is what servers take at the most without being asked to, ours among them.
LIMIT_BYTES: Final = 3_000_000
# What parts say of content that is kept, and what makes no sense beside the content itself.
_OURS: Final = ("size_bytes", "sha256")


async def sent_parts(
    task: TaskContext, parts: Iterable[part_pb2.Part], *, peer: str
) -> list[part_pb2.Part]:
    """Return the parts of a message as somebody outside the mesh can read them.

    Raises:
        InvalidArgumentError: what the mesh keeps is more than a message can bring there.
        TrunklineError: it can't be read.
    """
    sent: list[part_pb2.Part] = []
    left = LIMIT_BYTES
    for part in parts:
        if find_reference(part.url) is None:
            sent.append(part)
            continue
        try:
            content = await task.read(part, limit_bytes=left)
        except InvalidArgumentError:
            problem = (
                f"is too large to be sent to {peer} (at most {LIMIT_BYTES / 1e6:g} MB in all); "
                "send a URL where it can be fetched from"
            )
            raise InvalidArgumentError(part.filename or "the file", problem) from None
        left -= len(content)
        inline = part_pb2.Part(raw=content, filename=part.filename, media_type=part.media_type)
        if part.HasField("metadata"):
            inline.metadata.CopyFrom(part.metadata)
            for name in _OURS:
                inline.metadata.fields.pop(name, None)
            if not inline.metadata.fields:
                inline.ClearField("metadata")
        sent.append(inline)
    return sent
