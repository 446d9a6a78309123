"""The texts among the parts of messages and artifacts."""

from collections.abc import Iterable

from trunkline.v1 import part_pb2


def is_plain_text(part: part_pb2.Part) -> bool:
    """Return whether a part is text without metadata, so that it may be joined with others."""
    return part.HasField("text") and not (
        part.HasField("metadata") or part.filename or part.media_type
    )


def join_texts(parts: Iterable[part_pb2.Part]) -> str:
    """Return the texts of parts, joined."""
    return "".join(part.text for part in parts)
