"""The tools over MCP for totals, prices, travel, and lists of numbers."""

from fractions import Fraction
from typing import Annotated, Literal

from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import item_sums, number_lists
from trunkline_agents.math.amount_rendering import write_amount
from trunkline_agents.mcp_server import ToolAnswer, call_result

AmountText = Annotated[str, Field(description="A number, with or without a sign of money.")]
Thing = Annotated[
    str, Field(description="A unit such as g, or a thing such as eggs; may be empty.")
]
Numbers = Annotated[str, Field(description="Numbers with commas between them.")]


class FoundAmount(TypedDict):
    """The amount as decimal text."""

    amount: str


class NumbersFound(TypedDict):
    """The numbers as text."""

    numbers: str


class EverydayTools:
    """The tools. They compute with fractions, so that cents are exact."""

    async def add_items(
        self,
        items: Annotated[
            str,
            Field(description="Such as: 3 coffees at 2.80 and a cake at 4.50; or 12, 30 and 8."),
        ],
    ) -> Annotated[CallToolResult, FoundAmount]:
        """Add up amounts, or things with their prices and counts."""
        return await call_result(self._add_items(items))

    async def scale_price(
        self,
        amount: AmountText,
        price: AmountText,
        other_amount: AmountText = "1",
        unit: Thing = "",
        other_unit: Thing = "",
    ) -> Annotated[CallToolResult, FoundAmount]:
        """Find the price of another amount of a thing: of 10 eggs, if 6 cost 2.40."""
        return await call_result(self._scale_price(amount, unit, price, other_amount, other_unit))

    async def travel(
        self,
        distance: Annotated[str | None, Field(description="Such as 180 km or 20 miles.")] = None,
        speed: Annotated[str | None, Field(description="Such as 60 km/h or 30 mph.")] = None,
        duration: Annotated[str | None, Field(description="Such as 2.5 hours.")] = None,
    ) -> Annotated[CallToolResult, FoundAmount]:
        """Find the speed, the time or the distance of a journey from the other two."""
        return await call_result(self._travel(distance, speed, duration))

    async def sort_numbers(
        self,
        numbers: Numbers,
        order: Annotated[
            Literal["ascending", "descending"], Field(description="Smallest or largest first.")
        ] = "ascending",
    ) -> Annotated[CallToolResult, NumbersFound]:
        """Put numbers in order of size."""
        return await call_result(self._sort_numbers(numbers, order))

    async def continue_sequence(
        self,
        numbers: Numbers,
        position: Annotated[
            int | None, Field(description="Which number of the sequence; by default the next one.")
        ] = None,
    ) -> Annotated[CallToolResult, NumbersFound]:
        """Find the next number of a sequence, and its rule."""
        return await call_result(self._continue_sequence(numbers, position))

    async def read_roman(
        self, numeral: Annotated[str, Field(description="A Roman numeral, such as MCMXC.")]
    ) -> Annotated[CallToolResult, NumbersFound]:
        """Read a Roman numeral."""
        return await call_result(self._read_roman(numeral))

    async def _add_items(self, items: str) -> ToolAnswer:
        found = item_sums.add_items(items)
        return ToolAnswer(found.describe(), {"amount": _write(found.total)})

    async def _scale_price(
        self, amount: str, unit: str, price: str, other_amount: str, other_unit: str
    ) -> ToolAnswer:
        value = item_sums.scale_price(amount, unit, price, other_amount, other_unit)
        return ToolAnswer(write_amount(value), {"amount": _write(value)})

    async def _travel(
        self, distance: str | None, speed: str | None, duration: str | None
    ) -> ToolAnswer:
        match distance, speed, duration:
            case str(), None, str():
                found = item_sums.find_speed(distance, duration)
            case str(), str(), None:
                found = item_sums.find_travel_time(distance, speed)
            case None, str(), str():
                found = item_sums.find_distance(speed, duration)
            case _:
                raise InvalidArgumentError("distance", "Give two of distance, speed and duration.")
        return ToolAnswer(found.text, {"amount": _write(found.value)})

    async def _sort_numbers(self, numbers: str, order: str) -> ToolAnswer:
        text = number_lists.sort_numbers(numbers, descending=order == "descending")
        return ToolAnswer(text, {"numbers": text})

    async def _continue_sequence(self, numbers: str, position: int | None) -> ToolAnswer:
        text = number_lists.continue_sequence(numbers, position)
        return ToolAnswer(text, {"numbers": text})

    async def _read_roman(self, numeral: str) -> ToolAnswer:
        text = str(number_lists.read_roman(numeral))
        return ToolAnswer(text, {"numbers": text})


def _write(value: Fraction) -> str:
    return write_amount(value).removeprefix("≈ ")
