"""The table of errors is complete, and errors contain no internals."""

import logging

import pytest

from trunkline import errors
from trunkline.a2a_wire.errors import (
    A2A_ERROR_DOMAIN,
    ERROR_KINDS,
    INTERNAL_ERROR,
    WireError,
    invalid_params,
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


def test_a_wrong_field_is_named_in_the_details() -> None:
    wire_error = to_wire_error(errors.InvalidArgumentError("message.parts", "is empty"))
    assert wire_error.details()[1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "is empty"}],
    }


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


def test_a_missing_webhook_has_the_kind_of_a_missing_task() -> None:
    wire_error = to_wire_error(errors.WebhookNotFoundError("t-1", "c-1"))
    assert wire_error.kind == to_wire_error(errors.TaskNotFoundError("t-1")).kind
    assert wire_error.text.startswith("task 't-1' has no push notification config 'c-1'; ")
    assert wire_error.metadata == {"taskId": "t-1", "configId": "c-1"}


def test_metadata_has_the_names_of_the_wire() -> None:
    wire_error = to_wire_error(errors.TaskNotFoundError("t-1"))
    assert wire_error.metadata == {"taskId": "t-1"}


def test_an_overload_has_a_retry_delay() -> None:
    assert to_wire_error(errors.OverloadedError("math", "3")).retry_after_s == "3"
    assert to_wire_error(errors.PeerUnavailableError("host", "gone")).retry_after_s == "1"
    assert to_wire_error(errors.TaskNotFoundError("t")).retry_after_s == ""


def test_an_open_breaker_has_the_time_until_the_next_try() -> None:
    error = to_wire_error(errors.PeerCircuitOpenError("10.0.0.7:4", "it kept failing", "43"))
    assert error.kind == to_wire_error(errors.PeerUnavailableError("h", "it left")).kind
    assert error.retry_after_s == "43"


def test_the_retry_delay_is_in_the_details() -> None:
    details = to_wire_error(errors.OverloadedError("math", "3")).details()
    assert details[1] == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
    assert len(to_wire_error(errors.TaskNotFoundError("t")).details()) == 1


def test_an_expired_cursor_says_how_to_continue() -> None:
    wire_error = to_wire_error(errors.CursorExpiredError("t-1", "4", "9"))
    assert wire_error.kind.rpc_code == -32602
    assert wire_error.metadata == {"taskId": "t-1", "after": "4", "snapshotSequence": "9"}
    assert "snapshot at 9" in wire_error.text
    assert "SubscribeToTask without Last-Event-ID" in wire_error.text


def test_an_unexpected_error_is_logged_once_and_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        wire_error = to_wire_error(RuntimeError("the password is hunter2"))
    assert wire_error.kind == INTERNAL_ERROR
    assert "hunter2" not in str(wire_error)
    assert [record.message for record in caplog.records] == ["request.failed"]


def test_a_wire_error_is_returned_unchanged() -> None:
    error = invalid_params(("a", "is wrong"), ("b", "is missing"))
    assert to_wire_error(error) is error
    assert str(error) == "a: is wrong; b: is missing"


def test_a_class_without_a_row_has_that_of_its_parent() -> None:
    class MoreSpecificError(errors.TaskNotFoundError):
        pass

    assert to_wire_error(MoreSpecificError("t")).kind.reason == "TASK_NOT_FOUND"
    assert isinstance(to_wire_error(MoreSpecificError("t")), WireError)
