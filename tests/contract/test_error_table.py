"""Every error survives the wire, and every foreign status maps to an error."""

from collections import Counter
from dataclasses import fields

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from trunkline.errors import PeerProtocolError, TrunklineError, error_classes
from trunkline.mesh.client import status as inward
from trunkline.mesh.server import status as outward

CLASSES = sorted(error_classes(), key=lambda cls: cls.reason)


def make_error(cls: type[TrunklineError], value: str = "the {name}") -> TrunklineError:
    return cls.from_metadata({field.name: value.format(name=field.name) for field in fields(cls)})


def send_over_wire(status: status_pb2.Status) -> grpc.aio.AioRpcError:
    sent = rpc_status.to_status(status)
    return grpc.aio.AioRpcError(
        sent.code,
        trailing_metadata=grpc.aio.Metadata(*(sent.trailing_metadata or ())),
        details=sent.details,
    )


def code_name(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_round_trips_with_its_class_and_attributes(
    cls: type[TrunklineError],
) -> None:
    error = make_error(cls)
    received = inward.from_rpc_error(send_over_wire(outward.to_status(error)), peer="the peer")
    assert type(received) is cls
    assert received.metadata() == error.metadata()
    assert str(received) == str(error)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_travels_with_exactly_one_error_info(cls: type[TrunklineError]) -> None:
    status = outward.to_status(make_error(cls))
    info = error_details_pb2.ErrorInfo()
    assert len(status.details) == 1
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("trunkline.dev", cls.reason)
    assert code_name(status.code) == cls.code


def test_errors_that_may_pass_are_retryable() -> None:
    assert {cls.reason for cls in CLASSES if make_error(cls).retryable} == {
        "OVERLOADED",
        "QUEUE_FULL",
        "LIMIT_EXCEEDED",
        "PEER_UNAVAILABLE",
        "PEER_HANDSHAKE",
        "PEER_CIRCUIT_OPEN",
        "TASK_HOST_GONE",
        "TOOL_SERVER_UNAVAILABLE",
        "JOURNAL_UNAVAILABLE",
        "PEER_TIMEOUT",
        "MODEL_UNAVAILABLE",
    }


def test_reasons_are_unique() -> None:
    assert [reason for reason, n in Counter(cls.reason for cls in CLASSES).items() if n > 1] == []


@pytest.mark.parametrize("code", list(grpc.StatusCode), ids=lambda code: code.name)
def test_every_bare_status_maps_to_an_error(code: grpc.StatusCode) -> None:
    error = inward.from_rpc_error(grpc.aio.AioRpcError(code, details="the reason"), peer="the peer")
    assert type(error) in CLASSES
    assert "the reason" in str(error)


def test_a_bare_status_without_details_shows_its_code() -> None:
    error = inward.from_rpc_error(grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN), peer="the peer")
    assert "UNKNOWN" in str(error)


@pytest.mark.parametrize(
    ("domain", "reason"), [("example.com", "TASK_NOT_FOUND"), ("trunkline.dev", "UNKNOWN_REASON")]
)
def test_a_foreign_error_info_is_mapped_by_its_code(domain: str, reason: str) -> None:
    status = status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0], message="the reason")
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain=domain, reason=reason))
    received = inward.from_rpc_error(send_over_wire(status), peer="the peer")
    assert isinstance(received, PeerProtocolError)


def test_invalid_details_are_mapped_by_the_code() -> None:
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL,
        trailing_metadata=grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff")),
        details="the reason",
    )
    assert isinstance(inward.from_rpc_error(error, peer="the peer"), PeerProtocolError)


@pytest.mark.parametrize("value", ["x" * 100_000, "ß" * 100_000], ids=["ascii", "two bytes each"])
def test_long_attributes_are_truncated_to_fit_into_headers(value: str) -> None:
    for cls in CLASSES:
        status = outward.to_status(make_error(cls, value))
        assert len(status.message.encode()) * 3 + len(status.SerializeToString()) * 4 / 3 < 8192
        received = inward.from_rpc_error(send_over_wire(status), peer="the peer")
        assert type(received) is cls
