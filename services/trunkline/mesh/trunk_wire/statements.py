"""Users' statements on a trunk: sent once on a connection, and then by a number.

A statement is ten times as large as a short request, and the same for five minutes.
"""

from collections import OrderedDict
from typing import Final

from trunkline.core.users import STATEMENT_CHARS
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import trunk_service_pb2

STATEMENT_LIMIT: Final = 256
"""The largest number of a statement on a connection."""


class StatementNumbers:
    """The numbers that the caller of a connection gave to statements."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[str, int] = OrderedDict()

    def number(self, call: trunk_service_pb2.TrunkCall) -> None:
        """Number the statement of the next call that is sent; leave it out if the peer has it."""
        statement = call.user_statement
        if not statement:
            return
        number = self._numbers.get(statement)
        if number is not None:
            self._numbers.move_to_end(statement)
            call.user_statement = ""
        elif len(self._numbers) < STATEMENT_LIMIT:
            number = len(self._numbers) + 1
        else:
            # The least recently used statement gives its number away.
            _, number = self._numbers.popitem(last=False)
        self._numbers[statement] = call.user_statement_number = number


class NumberedStatements:
    """The statements that the peer of a connection has numbered."""

    def __init__(self) -> None:
        self._statements: dict[int, str] = {}

    def fill_in(self, call: trunk_service_pb2.TrunkCall) -> None:
        """Fill in the statement of a call that has only its number; remember a new statement.

        The calls must come in the order in which they were sent.
        """
        number = call.user_statement_number
        if not 0 < number <= STATEMENT_LIMIT:
            return
        if not call.user_statement:
            call.user_statement = self._statements.get(number, "")
        elif len(call.user_statement) <= STATEMENT_CHARS:
            # A longer one is not valid anyway, and would let a peer fill the memory.
            self._statements[number] = call.user_statement


def check_statement(call: trunk_service_pb2.TrunkCall) -> None:
    """Check that a call's number stands for a statement.

    Raises:
        InvalidArgumentError: it is too large, or came without a statement the first time.
    """
    number = call.user_statement_number
    if number > STATEMENT_LIMIT:
        problem = f"{number} is more than {STATEMENT_LIMIT}"
    elif number and not call.user_statement:
        problem = f"{number} stands for no statement yet; send the statement with it first"
    else:
        return
    raise InvalidArgumentError("user_statement_number", problem)
