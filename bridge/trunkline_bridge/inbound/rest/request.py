"""Reads what a request says, in its query or its body, as the JSON of one message."""

from collections.abc import Iterable
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from google.protobuf.descriptor import FieldDescriptor

from trunkline_bridge.errors import invalid_params
from trunkline_bridge.inbound.exchange import HttpCall
from trunkline_bridge.inbound.http import check_content_type, read_json
from trunkline_bridge.wire.json_values import Json

# Protobuf has descriptors in Python and in C, and their types have nothing in common.
_Described: TypeAlias = Any

_BOOLEANS = {"true": True, "false": False}


async def read_body(call: HttpCall) -> Json:
    """Return a body's JSON; none at all is an empty object. WireError: it is something else."""
    # Pages of other sites can't send what isn't declared as JSON; without a body they could.
    if call.body or call.headers.get(b"origin") is not None:
        check_content_type(call.headers)
    if not call.body.strip():
        return {}
    value = await read_json(call.body)
    if not isinstance(value, dict):
        raise invalid_params(("body", "must be a JSON object"))
    return value


def read_query(query: bytes, fields: Iterable[_Described]) -> Json:
    """Return those parameters of a query that are fields of a message, by their names in JSON.

    Lists are given by repeating their name, or with commas. What isn't a field is ignored, and an
    empty value is none. Numbers and times stay texts, as ProtoJSON lets them.

    Raises:
        WireError: a parameter is given more than once, or not in UTF-8; the field is named.
    """
    if not query:
        return {}
    known = {name: field for field in fields for name in (field.json_name, field.name)}
    result: Json = {}
    for name, raw in parse_qsl(query.decode("latin-1"), encoding="latin-1"):
        field = known.get(name)
        if field is None:
            continue
        text = _text(field.json_name, raw)
        if field.is_repeated:
            result.setdefault(field.json_name, []).extend(text.split(","))
        elif field.json_name in result:
            raise invalid_params((field.json_name, "is given more than once"))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            result[field.json_name] = _BOOLEANS.get(text, text)
        else:
            result[field.json_name] = text
    return result


def put(given: Json, field: _Described, value: str) -> None:
    """Set a field to what the path says. WireError: something else is given for it."""
    for name in {field.json_name, field.name}:
        if given.pop(name, None) not in (None, "", value):
            raise invalid_params((field.json_name, "is not what the path says; leave it out"))
    given[field.json_name] = value


def _text(name: str, raw: str) -> str:
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise invalid_params((name, "must be UTF-8, percent-encoded")) from None
