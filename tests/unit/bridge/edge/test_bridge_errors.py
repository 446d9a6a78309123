"""The table of errors is complete, and errors contain no internals."""

import logging

import pytest

from trunkline import errors
from trunkline_bridge.errors import (
    ERROR_DOMAIN,
    ERROR_KINDS,
    INTERNAL_ERROR,
    WireError,
    invalid_params,
    to_wire_error,
)

# Codes, reasons and statuses of A2A v1.0.1's own table of errors.
SPECIFIED = {
    "TASK_NOT_FOUND": (-32001, 404),
    "TASK_NOT_CANCELABLE": (-32002, 400),
    "UNSUPPORTED_OPERATION": (-32004, 400),
    "CONTENT_TYPE_NOT_SUPPORTED": (-32005, 400),
    "INVALID_AGENT_RESPONSE": (-32006, 500),
}


def made(cls: type[errors.TrunklineError]) -> errors.TrunklineError:
    """Return an error of a class whose fields contain their own names."""
    return cls.from_metadata({name: name for name in cls.__dataclass_fields__})


@pytest.mark.parametrize("cls", list(errors.error_classes()), ids=lambda cls: cls.reason)
def test_every_error_of_the_mesh_has_a_row(cls: type[errors.TrunklineError]) -> None:
    said = to_wire_error(made(cls))
    assert said.kind == ERROR_KINDS[cls]
    assert said.text.startswith(str(made(cls)).replace("path", "of the agent's host"))
    assert "`trunkline" not in said.text
    info = said.details()[0]
    assert (info["domain"], info["reason"]) == (ERROR_DOMAIN, said.kind.reason)
    assert all(isinstance(one, str) for one in info["metadata"].values())


def test_rows_of_a2a_s_own_errors_are_as_specified() -> None:
    rows = {row.reason: (row.rpc_code, row.http_status) for row in ERROR_KINDS.values()}
    assert {reason: rows[reason] for reason in SPECIFIED} == SPECIFIED


def test_a_wrong_field_is_named_in_the_details() -> None:
    said = to_wire_error(errors.InvalidArgumentError("message.parts", "is empty"))
    assert said.details()[1] == {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts", "description": "is empty"}],
    }


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("Connection refused (111)", "Connection refused; try again in a few seconds"),
        ("[Errno 111] Connection refused", "Connection refused; try again in a few seconds"),
        ("the host has left; start it again", "the host has left; start it again"),
    ],
)
def test_what_can_t_be_reached_says_what_to_do_and_no_errno(problem: str, said: str) -> None:
    error = to_wire_error(errors.PeerUnavailableError("agent 'far'", problem))
    assert error.text == f"agent 'far' can't be reached: {said}"
    assert error.metadata == {"peer": "agent 'far'", "problem": said}


@pytest.mark.parametrize(
    ("error", "place", "said"),
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
def test_nobody_outside_is_told_where_hosts_and_files_are(
    error: errors.TrunklineError, place: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        told = to_wire_error(error)
    assert told.text == said
    assert place not in str(told.details())
    if isinstance(error, errors.PeerError):
        # The operator's log has it.
        assert any(place in str(vars(record)) for record in caplog.records)


def test_a_webhook_that_is_not_there_is_named_and_a_task_that_is_not_found() -> None:
    said = to_wire_error(errors.WebhookNotFoundError("t-1", "c-1"))
    assert said.kind == to_wire_error(errors.TaskNotFoundError("t-1")).kind
    assert said.text.startswith("task 't-1' has no push notification config 'c-1'; ")
    assert said.metadata == {"taskId": "t-1", "configId": "c-1"}


def test_metadata_has_the_wire_s_names() -> None:
    said = to_wire_error(errors.TaskNotFoundError("t-1"))
    assert said.metadata == {"taskId": "t-1"}


def test_what_is_full_says_when_to_come_again() -> None:
    assert to_wire_error(errors.OverloadedError("math", "3")).retry_after_s == "3"
    assert to_wire_error(errors.PeerUnavailableError("host", "gone")).retry_after_s == "1"
    assert to_wire_error(errors.TaskNotFoundError("t")).retry_after_s == ""


def test_when_to_come_again_is_in_the_details_too() -> None:
    details = to_wire_error(errors.OverloadedError("math", "3")).details()
    assert details[1] == {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
    assert len(to_wire_error(errors.TaskNotFoundError("t")).details()) == 1


def test_an_event_that_is_gone_says_how_to_go_on() -> None:
    said = to_wire_error(errors.CursorExpiredError("t-1", "4", "9"))
    assert said.kind.rpc_code == -32602
    assert said.metadata == {"taskId": "t-1", "after": "4", "snapshotSequence": "9"}
    assert "snapshot at 9" in said.text
    assert "SubscribeToTask without Last-Event-ID" in said.text


def test_what_nobody_expected_is_logged_once_and_tells_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        said = to_wire_error(RuntimeError("the password is hunter2"))
    assert said.kind == INTERNAL_ERROR
    assert "hunter2" not in str(said)
    assert [record.message for record in caplog.records] == ["request.failed"]


def test_a_wire_error_stays_what_it_is() -> None:
    error = invalid_params(("a", "is wrong"), ("b", "is missing"))
    assert to_wire_error(error) is error
    assert str(error) == "a: is wrong; b: is missing"


def test_a_class_without_a_row_of_its_own_has_that_of_its_parent() -> None:
    class MoreSpecificError(errors.TaskNotFoundError):
        pass

    assert to_wire_error(MoreSpecificError("t")).kind.reason == "TASK_NOT_FOUND"
    assert isinstance(to_wire_error(MoreSpecificError("t")), WireError)
