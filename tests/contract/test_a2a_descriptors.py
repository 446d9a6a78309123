"""The project's A2A messages equal those that the reference SDK has compiled, field by field."""

from collections.abc import Iterator
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2 as sdk_pb2
from google.protobuf import descriptor_pool

from trunkline.a2a.v0_3 import a2a_pb2 as old_pb2
from trunkline.a2a.v0_3 import agent_card_pb2 as old_card_pb2
from trunkline.a2a.v0_3 import security_scheme_pb2 as old_security_pb2
from trunkline.a2a.v0_3 import task_pb2 as old_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.json_values import JSON_TYPES
from trunkline.v1 import (
    agent_card_pb2,
    artifact_pb2,
    message_pb2,
    part_pb2,
    push_notification_pb2,
    security_scheme_pb2,
    task_pb2,
)
from trunkline_bridge.a2a.bindings.grpc import SERVICES
from trunkline_bridge.a2a.bindings.grpc_server import public_pool
from trunkline_bridge.a2a.versions.grpc_service import GrpcService

OWN_MODULES = {
    "1.0": (
        a2a_pb2,
        agent_card_pb2,
        artifact_pb2,
        message_pb2,
        part_pb2,
        push_notification_pb2,
        security_scheme_pb2,
        task_pb2,
    ),
    "0.3": (old_pb2, old_card_pb2, old_security_pb2, old_task_pb2),
}
SDK_MODULES = {"1.0": sdk_pb2, "0.3": a2a_v0_3_pb2}


def short_name(full_name: str) -> str:
    """Return the name of a type without its package, except for Google's own types.

    Our types of JSON have the bytes of Google's: tests/property/test_json_values.py proves it.
    """
    name = full_name.rpartition(".")[2]
    if full_name in JSON_TYPES:
        return f"google.protobuf.{name}"
    return full_name if full_name.startswith("google.") else name


def describe_field(field: Any) -> tuple[Any, ...]:
    kind = field.message_type or field.enum_type
    # The map field itself determines the fields of its entries.
    type_name = short_name(kind.full_name) if kind is not None else ""
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    shape = (field.type, type_name, field.is_repeated, field.has_presence)
    return (field.number, field.name, field.json_name, *shape, oneof)


def iterate_messages(file: Any) -> Iterator[tuple[str, Any]]:
    for name, message in file.message_types_by_name.items():
        yield name, message
        # Map entries.
        yield from (
            (f"{name}.{nested_type.name}", nested_type) for nested_type in message.nested_types
        )


def describe_files(*files: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Return the messages and enums of files by their short names."""
    descriptions: dict[str, list[tuple[Any, ...]]] = {}
    for file in files:
        for name, message in iterate_messages(file):
            descriptions[name] = sorted(describe_field(field) for field in message.fields)
        for name, enum in file.enum_types_by_name.items():
            descriptions[name] = sorted((value.number, value.name) for value in enum.values)
    return descriptions


@pytest.mark.parametrize("version", OWN_MODULES)
def test_every_a2a_message_equals_the_sdks_field_by_field(version: str) -> None:
    expected = describe_files(SDK_MODULES[version].DESCRIPTOR)
    actual = describe_files(*(module.DESCRIPTOR for module in OWN_MODULES[version]))
    assert expected
    assert {name: actual.get(name) for name in expected} == expected


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.package)
def test_every_a2a_method_is_served_with_the_a2a_types(service: GrpcService) -> None:
    """Reflection returns the same as the SDK's own descriptors, including package names."""
    pool = public_pool([service])
    actual: Any = pool.FindServiceByName(service.name)
    expected: Any = descriptor_pool.Default().FindServiceByName(service.name)
    assert describe_methods(actual) == describe_methods(expected)
    assert describe_files(actual.file) == describe_files(expected.file)


def describe_methods(service: Any) -> dict[str, tuple[str, str, bool]]:
    return {
        method.name: (
            method.input_type.full_name,
            method.output_type.full_name,
            method.server_streaming,
        )
        for method in service.methods
    }
