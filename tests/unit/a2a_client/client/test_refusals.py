"""Refusals of a bridge become the errors that the mesh behind it raised."""

import pytest

from trunkline.a2a_client.errors import ErrorObject, ServerBusyError
from trunkline.a2a_client.refusals import to_mesh_error
from trunkline.a2a_wire.errors import ERROR_KINDS, OVERLOADED, to_wire_error
from trunkline.errors import (
    LimitExceededError,
    OverloadedError,
    QueueFullError,
    TrunklineError,
)

TOO_MUCH = [
    OverloadedError(agent="math", retry_after_s="7"),
    LimitExceededError("the budget is used up", "60"),
    QueueFullError("1000"),
]


def refusal(**metadata: str) -> ServerBusyError:
    error = ErrorObject(OVERLOADED.rpc_code, "it is too much", metadata)
    return ServerBusyError("a peer", "it is overloaded", status=429, error=error)


def test_every_error_of_too_much_is_told_apart() -> None:
    overloads = {cls for cls, kind in ERROR_KINDS.items() if kind is OVERLOADED}
    assert {type(error) for error in TOO_MUCH} == overloads


@pytest.mark.parametrize("error", TOO_MUCH, ids=lambda error: error.reason)
def test_an_error_of_too_much_comes_back_as_it_was(error: TrunklineError) -> None:
    received = refusal(**to_wire_error(error).metadata)
    converted = to_mesh_error(received, peer="a peer")
    assert (type(converted), converted.metadata()) == (type(error), error.metadata())


def test_a_stranger_that_names_no_limit_is_itself_overloaded() -> None:
    converted = to_mesh_error(refusal(), peer="a peer")
    assert str(converted) == "agent 'a peer' is full; try again in a few s"
    converted = to_mesh_error(refusal(retryAfterS="9"), peer="a peer")
    assert str(converted) == "agent 'a peer' is full; try again in 9 s"
