"""The JSON schema of `trunkline.toml`, by which editors complete and check it."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Final, get_args, get_type_hints

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from trunkline.core.attribute_docs import read_attribute_docs
from trunkline.core.settings.settings import DEFAULTS, Settings
from trunkline.core.settings.sources import field_definitions, file_key

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
# Settings that have no key of their own in the file.
_NOT_KEYS: Final = frozenset({"plugins"})


class _Generator(GenerateJsonSchema):
    def function_plain_schema(
        self, schema: core_schema.PlainValidatorFunctionSchema
    ) -> dict[str, Any]:
        """Return the schema of an address, the only type with its own validator."""
        return {"type": "string"}


def build_settings_schema(plugins: Mapping[str, type]) -> dict[str, Any]:
    """Return the JSON schema of `trunkline.toml`.

    `plugins` are the types of the tables of installed plugins, by the plugin's name.
    """
    model = create_model("Settings", __config__=ConfigDict(), **field_definitions())
    schema = model.model_json_schema(schema_generator=_Generator)
    definitions = schema.pop("$defs", {})
    definitions.pop("PluginTable", None)
    _describe_definitions(definitions)
    descriptions = read_attribute_docs(Settings)
    properties: dict[str, Any] = {}
    for name, value in schema["properties"].items():
        if name in _NOT_KEYS:
            continue
        value.pop("title", None)
        if value.get("type") == "string" and isinstance(value.get("default"), dict):
            # An address, which pydantic writes as its parts.
            value["default"] = str(getattr(DEFAULTS, name))
        if text := descriptions.get(name):
            value["description"] = text
        table, dot, key = file_key([name]).partition(".")
        if dot:
            group = {"type": "object", "properties": {}, "additionalProperties": False}
            properties.setdefault(table, group)["properties"][key] = value
        else:
            properties[table] = value
    for name, kind in plugins.items():
        plugin = TypeAdapter(kind).json_schema(schema_generator=_Generator)
        definitions |= plugin.pop("$defs", {})
        properties[name] = plugin
    return {
        "$schema": DIALECT,
        "title": "Settings of a Trunkline mesh",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
        "$defs": definitions,
    }


def _describe_definitions(definitions: Mapping[str, dict[str, Any]]) -> None:
    tables = _find_tables(Settings)
    for name, definition in definitions.items():
        definition.pop("title", None)
        kind = tables.get(name)
        docs = read_attribute_docs(kind) if kind else {}
        for key, value in definition.get("properties", {}).items():
            value.pop("title", None)
            if text := docs.get(key):
                value["description"] = text


def _find_tables(kind: Any) -> dict[str, type]:  # noqa: ANN401  types have no common type
    """Return the dataclasses in the annotations of one, and in theirs, by name."""
    found: dict[str, type] = {}
    pending = [kind]
    while pending:
        current = pending.pop()
        if is_dataclass(current) and isinstance(current, type):
            if current.__name__ in found:
                continue
            found[current.__name__] = current
            pending += get_type_hints(current).values()
        pending += get_args(current)
    return found
