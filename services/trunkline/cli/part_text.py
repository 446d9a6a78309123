"""The text of a part of a message, an artifact or a tool's result, as commands print it."""

import json

from trunkline.core.json_values import value_json
from trunkline.v1 import part_pb2


def render_part(part: part_pb2.Part) -> str:
    """Return the text of a part, JSON for data, or the name and the size or the URL of a file."""
    match part.WhichOneof("content"):
        case "text":
            return part.text
        case "data":
            return json.dumps(value_json(part.data), ensure_ascii=False)
    name = part.filename or part.media_type or "unnamed"
    if part.HasField("url"):
        return f"[file {name} at {part.url}]"
    return f"[file {name}, {len(part.raw)} bytes]"
