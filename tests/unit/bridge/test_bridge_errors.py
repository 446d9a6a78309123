"""The table of errors is complete, and errors contain no internals."""

import logging

import pytest

from harness.logs import find_logged
from trunkline import errors
from trunkline.a2a_wire.errors import (
    A2A_ERROR_DOMAIN,
    ERROR_KINDS,
    INTERNAL_ERROR,
    WireError,
    to_wire_error,
)

# Codes, reasons and statuses of A2A v1.0.1's own error table.
SPECIFIED = {
    "TASK_NOT_FOUND": (-32001, 404),
    "TASK_NOT_CANCELABLE": (-32002, 400),
    "UNSUPPORTED_OPERATION": (-32004, 400),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400),
    "INVALID_AGENT_RESPONSE": (-32006, 500),
}


def make_error(cls: type[errors.TrunklineError]) -> errors.TrunklineError:
    """Return an error of a class whose fields contain their own names."""
    return cls.from_metadata({name: name for name in cls.__dataclass_fields__})


@pytest.mark.parametrize("cls", list(errors.error_classes()), ids=lambda cls: cls.reason)
def test_every_error_of_the_mesh_has_a_row(cls: type[errors.TrunklineError]) -> None:
    wire_error = to_wire_error(make_error(cls))
    assert wire_error.kind == ERROR_KINDS[cls]
    assert wire_error.text.startswith(str(make_error(cls)).replace("path", "of the agent's host"))
    assert "`trunkline" not in wire_error.text
    info = wire_error.details()[0]
    assert (info["domain"], info["reason"]) == (A2A_ERROR_DOMAIN, wire_error.kind.reason)
    assert all(isinstance(value, str) for value in info["metadata"].values())


@pytest.mark.parametrize("cls", list(errors.error_classes()), ids=lambda cls: cls.reason)
def test_the_tree_in_the_documentation_has_every_error(cls: type[errors.TrunklineError]) -> None:
    lines = [line.strip("│├└─ ").split() for line in (errors.__doc__ or "").splitlines()]
    assert [cls.__name__, cls.code.value, cls.reason] in [line[:3] for line in lines]


def test_rows_of_a2as_own_errors_match_the_specification() -> None:
    rows = {row.reason: (row.rpc_code, row.http_status) for row in ERROR_KINDS.values()}
    assert {reason: rows[reason] for reason in SPECIFIED} == SPECIFIED


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("Connection refused (111)", "Connection refused; try again in a few seconds"),
        ("[Errno 111] Connection refused", "Connection refused; try again in a few seconds"),
        ("the host has left; start it again", "the host has left; start it again"),
    ],
)
def test_an_unreachable_peer_is_reported_with_advice_and_without_errno(
    problem: str, expected: str
) -> None:
    error = to_wire_error(errors.PeerUnavailableError("agent 'far'", problem))
    assert error.text == f"agent 'far' can't be reached: {expected}"
    assert error.metadata == {"peer": "agent 'far'", "problem": expected}


@pytest.mark.parametrize(
    ("error", "address", "expected"),
    [
        (
            errors.PeerUnavailableError("10.0.0.1:4", "it left"),
            "10.0.0.1:4",
            "the agent's host can't be reached: it left; try again in a few seconds",
        ),
        (
            errors.PeerUnavailableError("the registry at mesh-1:4", "it left; wait"),
            "mesh-1",
            "the registry can't be reached: it left; wait",
        ),
        (
            errors.PeerUnavailableError("the tool adapter at 10.0.0.1:4", "it left; wait"),
            "10.0.0.1",
            "the tool adapter can't be reached: it left; wait",
        ),
        (
            errors.PeerUnavailableError("agent 'far'", "ipv4:10.0.0.1:4: reset; wait"),
            "10.0.0.1",
            "agent 'far' can't be reached: the agent's host: reset; wait",
        ),
        (
            errors.PeerUnavailableError("this host", "it is shutting down; wait"),
            "this host",
            "the agent's host can't be reached: it is shutting down; wait",
        ),
        (
            errors.PeerTimeoutError("[fd00::1]:50051", "it took 5 s"),
            "fd00",
            "the agent's host did not answer in time: it took 5 s",
        ),
        (
            errors.PeerProtocolError("unix:/run/mesh", "it sent nonsense"),
            "/run/mesh",
            "the agent's host broke the protocol: it sent nonsense",
        ),
        (
            errors.JournalUnavailableError("/var/lib/mesh/4.db", "the disk is full"),
            "/var/lib",
            "journal of the agent's host: the disk is full",
        ),
        (
            errors.UnsupportedOperationError("10.0.0.1:4", "no such method"),
            "10.0.0.1",
            "the agent's host is not supported: no such method",
        ),
    ],
)
def test_addresses_and_paths_are_redacted(
    error: errors.TrunklineError, address: str, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        wire_error = to_wire_error(error)
    assert wire_error.text == expected
    assert address not in str(wire_error.details())
    if isinstance(error, errors.PeerError):
        # The operator's log contains the address.
        assert any(address in str(vars(record)) for record in caplog.records)


def test_an_open_breaker_has_the_time_until_the_next_try() -> None:
    error = to_wire_error(errors.PeerCircuitOpenError("10.0.0.7:4", "it kept failing", "43"))
    assert error.kind == to_wire_error(errors.PeerUnavailableError("h", "it left")).kind
    assert error.retry_after_s == "43"


def test_an_unexpected_error_is_logged_once_and_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        wire_error = to_wire_error(RuntimeError("the password is hunter2"))
    assert wire_error.kind == INTERNAL_ERROR
    assert "hunter2" not in str(wire_error)
    assert [record.message for record in find_logged(caplog)] == ["request.failed"]


def test_a_class_without_a_row_has_that_of_its_parent() -> None:
    class MoreSpecificError(errors.TaskNotFoundError):
        pass

    assert to_wire_error(MoreSpecificError("t")).kind.reason == "TASK_NOT_FOUND"
    assert isinstance(to_wire_error(MoreSpecificError("t")), WireError)
