"""Messages to send: parts from flags, in their order."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from trunkline.a2a.v1 import a2a_pb2
from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.options import StandardOptions
from trunkline.cli.attachments import build_file_part
from trunkline.cli.terminal import is_text
from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import build_struct, build_value
from trunkline.v1 import message_pb2, part_pb2

PartKind = Literal["text", "file", "data"]

_UNKNOWN_TYPE: Final = "application/octet-stream"


@dataclass(slots=True)
class PartFlag:
    """A flag that adds a part."""

    kind: PartKind
    value: str
    media_type: str = ""
    """From the flag that follows the part. If it is empty, the media type is inferred."""


def order_parts(order: Sequence[str], values: Mapping[str, list[str] | None]) -> list[PartFlag]:
    """Return the parts of the flags on the command line, in the order of the flags.

    `values` are the values of each flag. CommandError: `--media-type` follows no part.
    """
    remaining = {name: iter(given or ()) for name, given in values.items()}
    parts: list[PartFlag] = []
    for name in order:
        match name:
            case "media_type":
                if not parts:
                    raise usage("--media-type must follow --text, --file or --data")
                parts[-1].media_type = next(remaining[name])
            case "text" | "file" | "data":
                parts.append(PartFlag(name, next(remaining[name])))
    return parts


def build_request(
    options: StandardOptions, flags: list[PartFlag], console: Console
) -> a2a_pb2.SendMessageRequest:
    """Return the request to send a message.

    Raises:
        CommandError: it has no content, or a file can't be read.
    """
    if not flags:
        raise usage("there is nothing to send", 'give a text: send "hello"')
    if not all(is_text(flag.value) for flag in flags):
        raise usage("the message is not UTF-8 text")
    if sum(flag.kind == "data" and flag.value == "-" for flag in flags) > 1:
        raise usage("--data - reads stdin, which can be read only once")
    request = a2a_pb2.SendMessageRequest()
    message = request.message
    message.message_id = str(uuid.uuid4())
    message.role = message_pb2.ROLE_USER
    message.task_id = options.task_id
    message.context_id = options.context_id
    message.parts.extend(_build_part(flag, console) for flag in flags)
    if metadata := options.metadata:
        request.metadata.CopyFrom(build_struct(metadata))
        message.metadata.CopyFrom(request.metadata)
    return request


def _build_part(flag: PartFlag, console: Console) -> part_pb2.Part:
    match flag.kind:
        case "text":
            return part_pb2.Part(text=flag.value, media_type=flag.media_type)
        case "data":
            data = build_value(_read_data(flag.value, console))
            return part_pb2.Part(data=data, media_type=flag.media_type)
        case "file":
            return _build_file(flag, console.folder)


def _build_file(flag: PartFlag, folder: Path) -> part_pb2.Part:
    try:
        part = build_file_part(flag.value, folder=folder)
    except OSError as error:
        raise usage(f"--file: {flag.value} can't be read: {error.strerror}") from None
    part.media_type = flag.media_type or part.media_type or _UNKNOWN_TYPE
    return part


def _read_data(source: str, console: Console) -> JsonValue:
    where = "stdin" if source == "-" else source
    try:
        if source == "-":
            text = console.stdin.read()
        else:
            text = (console.folder / Path(source).expanduser()).read_text(encoding="utf-8")
        if not is_text(text):
            raise usage(f"--data: {where} is not UTF-8 text")
        return json.loads(text)
    except OSError as error:
        raise usage(f"--data: {where} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise usage(f"--data: {where} is not JSON") from None
