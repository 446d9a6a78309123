"""Every error survives the wire, and every status that isn't ours means something."""

from collections import Counter
from dataclasses import fields

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from trunkline.client import status as inward
from trunkline.errors import PeerProtocolError, TrunklineError, error_classes
from trunkline.server import status as outward

CLASSES = sorted(error_classes(), key=lambda cls: cls.reason)


def made(cls: type[TrunklineError], value: str = "the {name}") -> TrunklineError:
    return cls.from_metadata({field.name: value.format(name=field.name) for field in fields(cls)})


def over_the_wire(status: status_pb2.Status) -> grpc.aio.AioRpcError:
    sent = rpc_status.to_status(status)
    return grpc.aio.AioRpcError(
        sent.code,
        trailing_metadata=grpc.aio.Metadata(*(sent.trailing_metadata or ())),
        details=sent.details,
    )


def code_name(number: int) -> str:
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_comes_back_as_the_same_class_with_the_same_attributes(
    cls: type[TrunklineError],
) -> None:
    error = made(cls)
    back = inward.from_rpc_error(over_the_wire(outward.to_status(error)), peer="the peer")
    assert type(back) is cls
    assert back.metadata() == error.metadata()
    assert str(back) == str(error)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_travels_with_exactly_one_error_info(cls: type[TrunklineError]) -> None:
    status = outward.to_status(made(cls))
    info = error_details_pb2.ErrorInfo()
    assert len(status.details) == 1
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("trunkline.dev", cls.reason)
    assert code_name(status.code) == cls.code


def test_reasons_are_unique() -> None:
    assert [reason for reason, n in Counter(cls.reason for cls in CLASSES).items() if n > 1] == []


@pytest.mark.parametrize("code", list(grpc.StatusCode), ids=lambda code: code.name)
def test_every_bare_status_means_something_to_us(code: grpc.StatusCode) -> None:
    error = inward.from_rpc_error(grpc.aio.AioRpcError(code, details="so it is"), peer="the peer")
    assert type(error) in CLASSES
    assert "so it is" in str(error)


def test_a_bare_status_without_details_is_told_by_its_code() -> None:
    error = inward.from_rpc_error(grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN), peer="the peer")
    assert "UNKNOWN" in str(error)


@pytest.mark.parametrize(
    ("domain", "reason"), [("example.com", "TASK_NOT_FOUND"), ("trunkline.dev", "OF_THE_FUTURE")]
)
def test_an_error_info_that_is_not_ours_is_read_by_its_code(domain: str, reason: str) -> None:
    status = status_pb2.Status(code=grpc.StatusCode.INTERNAL.value[0], message="so it is")
    status.details.add().Pack(error_details_pb2.ErrorInfo(domain=domain, reason=reason))
    back = inward.from_rpc_error(over_the_wire(status), peer="the peer")
    assert isinstance(back, PeerProtocolError)


def test_details_that_are_garbage_are_read_by_the_code() -> None:
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL,
        trailing_metadata=grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff")),
        details="so it is",
    )
    assert isinstance(inward.from_rpc_error(error, peer="the peer"), PeerProtocolError)


@pytest.mark.parametrize("value", ["x" * 100_000, "ß" * 100_000], ids=["ascii", "two bytes each"])
def test_long_attributes_are_cut_so_that_an_error_fits_into_headers(value: str) -> None:
    for cls in CLASSES:
        status = outward.to_status(made(cls, value))
        assert len(status.message.encode()) * 3 + len(status.SerializeToString()) * 4 / 3 < 8192
        back = inward.from_rpc_error(over_the_wire(status), peer="the peer")
        assert type(back) is cls
