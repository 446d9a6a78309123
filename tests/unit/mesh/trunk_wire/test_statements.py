"""Statements of users on a trunk are sent once, and then by their numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.users import STATEMENT_CHARS
from trunkline.errors import InvalidArgumentError
from trunkline.mesh.trunk_wire.statements import (
    STATEMENT_LIMIT,
    NumberedStatements,
    StatementNumbers,
    check_statement,
)
from trunkline.v1 import trunk_service_pb2


def transfer(
    numbers: StatementNumbers, known: NumberedStatements, statement: str
) -> tuple[int, str]:
    """Send a call; return its size on the wire, and the statement that the peer reads."""
    call = trunk_service_pb2.TrunkCall(user_statement=statement)
    numbers.number(call)
    sent = call.SerializeToString()
    received = trunk_service_pb2.TrunkCall.FromString(sent)
    known.fill_in(received)
    check_statement(received)
    return len(sent), received.user_statement


@given(st.lists(st.integers(0, STATEMENT_LIMIT + 40), max_size=2000))
def test_the_peer_reads_the_statements_that_were_sent(users: list[int]) -> None:
    numbers, known = StatementNumbers(), NumberedStatements()
    for user in users:
        statement = f"statement of user {user}" if user else ""
        assert transfer(numbers, known, statement)[1] == statement


def test_more_users_than_numbers_take_turns() -> None:
    numbers, known = StatementNumbers(), NumberedStatements()
    for _ in range(2):
        for user in range(STATEMENT_LIMIT + 1):
            assert transfer(numbers, known, f"user {user}")[1] == f"user {user}"


def test_a_statement_is_sent_once() -> None:
    numbers, known = StatementNumbers(), NumberedStatements()
    statement = "x" * 1300
    sizes = [transfer(numbers, known, statement)[0] for _ in range(3)]
    assert sizes[0] > len(statement)
    assert sizes[1:] == [2, 2]


@pytest.mark.parametrize(
    ("number", "problem"),
    [(STATEMENT_LIMIT + 1, "is more than 256"), (7, "stands for no statement yet")],
)
def test_a_wrong_number_is_the_callers_error(number: int, problem: str) -> None:
    call = trunk_service_pb2.TrunkCall(user_statement_number=number)
    NumberedStatements().fill_in(call)
    with pytest.raises(InvalidArgumentError, match=problem):
        check_statement(call)


def test_a_peer_can_not_fill_the_memory() -> None:
    known = NumberedStatements()
    huge = "x" * (STATEMENT_CHARS + 1)
    known.fill_in(trunk_service_pb2.TrunkCall(user_statement=huge, user_statement_number=1))
    later = trunk_service_pb2.TrunkCall(user_statement_number=1)
    known.fill_in(later)
    assert not later.user_statement
