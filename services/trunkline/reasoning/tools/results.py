"""What becomes of a tool's result: what the model is told, and what the user gets as files."""

from collections.abc import Sequence

from trunkline.v1 import part_pb2, tool_service_pb2


def said(result: tool_service_pb2.ToolResult) -> str:
    """Return what the model is told: all that is text, else what is attached in its place."""
    texts = [part.text for part in result.content if part.HasField("text")]
    if texts:
        return "\n".join(texts)
    return "\n".join(f"Attached: {_name_of(part)}." for part in result.content)


def files(result: tool_service_pb2.ToolResult) -> Sequence[part_pb2.Part]:
    """Return what becomes part of the answer beside what the model makes of the text.

    A text that has a name is a file, too, and no part of the answer's text.
    """
    found = []
    for part in result.content:
        if not part.HasField("text"):
            found.append(part)
        elif part.filename:
            raw = part.text.encode()
            found.append(part_pb2.Part(raw=raw, media_type=part.media_type, filename=part.filename))
    return found


def _name_of(part: part_pb2.Part) -> str:
    kind = part.media_type or "a file"
    return f"{part.filename} ({kind})" if part.filename else kind
