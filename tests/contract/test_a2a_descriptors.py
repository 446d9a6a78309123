"""Our A2A messages are A2A's, field by field, as the reference SDK has them compiled."""

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
from trunkline.v1 import (
    agent_card_pb2,
    artifact_pb2,
    message_pb2,
    part_pb2,
    push_notification_pb2,
    security_scheme_pb2,
    task_pb2,
)
from trunkline_bridge.bindings.grpc import SERVICES
from trunkline_bridge.bindings.grpc_server import public_pool
from trunkline_bridge.bindings.grpc_service import GrpcService

OURS = {
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
THEIRS = {"1.0": sdk_pb2, "0.3": a2a_v0_3_pb2}


def short(full_name: str) -> str:
    """A type's name without its package; google's own keep theirs."""
    is_google = full_name.startswith("google.")
    return full_name if is_google else full_name.rpartition(".")[2]


def field_of(field: Any) -> tuple[Any, ...]:
    kind = field.message_type or field.enum_type
    # Which fields of their own an entry of a map has follows from the map itself.
    named = short(kind.full_name) if kind is not None else ""
    oneof = field.containing_oneof.name if field.containing_oneof else ""
    shape = (field.type, named, field.is_repeated, field.has_presence)
    return (field.number, field.name, field.json_name, *shape, oneof)


def messages_of(file: Any) -> Iterator[tuple[str, Any]]:
    for name, message in file.message_types_by_name.items():
        yield name, message
        # Maps.
        yield from ((f"{name}.{one.name}", one) for one in message.nested_types)


def described(*files: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Messages and enums of files by their short names."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for file in files:
        for name, message in messages_of(file):
            found[name] = sorted(field_of(field) for field in message.fields)
        for name, enum in file.enum_types_by_name.items():
            found[name] = sorted((value.number, value.name) for value in enum.values)
    return found


@pytest.mark.parametrize("version", OURS)
def test_every_message_of_a2a_is_ours_field_by_field(version: str) -> None:
    theirs = described(THEIRS[version].DESCRIPTOR)
    ours = described(*(module.DESCRIPTOR for module in OURS[version]))
    assert theirs
    assert {name: ours.get(name) for name in theirs} == theirs


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.package)
def test_every_method_of_a2a_is_served_with_a2a_s_types(service: GrpcService) -> None:
    """What reflection tells is what the SDK's own descriptors tell, names of packages and all."""
    pool = public_pool([service])
    ours: Any = pool.FindServiceByName(service.name)
    theirs: Any = descriptor_pool.Default().FindServiceByName(service.name)
    assert methods_of(ours) == methods_of(theirs)
    assert described(ours.file) == described(theirs.file)


def methods_of(service: Any) -> dict[str, tuple[str, str, bool]]:
    return {
        one.name: (one.input_type.full_name, one.output_type.full_name, one.server_streaming)
        for one in service.methods
    }
