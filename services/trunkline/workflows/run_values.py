"""The input and the output of a run: from and to the parts of messages, checked by schema."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trunkline.core.json_values import value_json
from trunkline.tasks.content import data_part
from trunkline.v1 import message_pb2, part_pb2
from trunkline.workflows.definition import JsonSchema, Workflow
from trunkline.workflows.schemas import find_problem

_TEXT: Final = "text"


class InputError(ValueError):
    """The input of a run does not fit the schema of its workflow. Its text names the field."""


def read_input(workflow: Workflow, message: message_pb2.Message) -> dict[str, Any]:
    """Return the input of a run: the first data part of a message, else its text.

    A text is read as JSON if it is an object, else it is the one required field, or `text`. Fields
    that are not there get the `default` of their schema.

    Raises:
        InputError: it does not fit the schema `inputs`.
    """
    data = [value_json(part.data) for part in message.parts if part.HasField("data")]
    text = " ".join(part.text for part in message.parts if part.HasField(_TEXT))
    schema = workflow.inputs
    values = data[0] if data else _read_text(schema, text)
    if not isinstance(values, dict):
        raise InputError(f"the input is {_kind(values)}; give an object{_list_fields(schema)}")
    if schema is None:
        return values
    values = {**find_defaults(schema), **values}
    if problem := find_problem(schema, values):
        raise InputError(f"{problem}{_list_fields(schema)}")
    return values


def find_defaults(schema: JsonSchema) -> dict[str, Any]:
    """Return the defaults of the fields that a schema describes."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, Mapping) and "default" in field
    }


def check_output(workflow: Workflow, output: Mapping[str, Any]) -> str:
    """Return the fault of the output of a run by the schema `outputs`, or "" without a fault."""
    if workflow.outputs is None:
        return ""
    data = output["data"]
    value = {_TEXT: output[_TEXT]} if data is None else data
    problem = find_problem(workflow.outputs, value)
    return f"its answer does not fit `outputs`: {problem}" if problem else ""


def build_parts(output: Mapping[str, Any]) -> list[str | part_pb2.Part]:
    """Return the parts of an answer: its text, and its data if it has data."""
    parts: list[str | part_pb2.Part] = [output[_TEXT]] if output[_TEXT] else []
    if output["data"] is not None:
        parts.append(data_part(output["data"]))
    return parts


class RunEnded(Exception):  # noqa: N818  caught within this package
    """A run ended at a node whose state is not `completed`."""

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


def _read_text(schema: JsonSchema | None, text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, dict):
            return value
    return {_find_text_field(schema): text}


def _find_text_field(schema: JsonSchema | None) -> str:
    """Return the field that a plain text is for: the only required one, if it is a text."""
    required: Sequence[str] = (schema or {}).get("required", ())
    if len(required) != 1:
        return _TEXT
    properties: Mapping[str, Any] = (schema or {}).get("properties", {})
    kind = properties.get(required[0], {}).get("type", "string")
    return required[0] if kind == "string" else _TEXT


def _list_fields(schema: JsonSchema | None) -> str:
    """Return the fields that a schema takes, to end a sentence with."""
    properties: Mapping[str, Any] = (schema or {}).get("properties", {})
    if not properties:
        return ""
    required = set((schema or {}).get("required", ()))
    fields = (
        f"{name} ({', '.join(filter(None, (_type(kind), 'required' if name in required else '')))})"
        for name, kind in properties.items()
    )
    return f"; the workflow takes: {', '.join(fields)}"


def _type(schema: object) -> str:
    kind = schema.get("type", "any") if isinstance(schema, Mapping) else "any"
    return kind if isinstance(kind, str) else " or ".join(map(str, kind))


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "a bool"}.get(type(value), "no object")
