"""The tools for units over MCP: convert_units and compare_units."""

import operator
import re
from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Final, Literal

from mcp_types import CallToolResult
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math import units
from trunkline_agents.mcp_server import ToolAnswer, call_result

_MAX_AMOUNT_CHARS = 40
_MIXED_AMOUNT = re.compile(r"(\d+)\s+(\d+/\d+)")
_RELATIONS: Final = {"more": operator.gt, "less": operator.lt, "equal": operator.eq}
AmountArgument = Annotated[str | float, Field(description="How much, as a number.")]
MoreAmount = Annotated[
    str | float | None, Field(description="The amount in a smaller unit: the 11 of 5 feet 11.")
]
UnitName = Annotated[str, Field(description="A unit such as km, pounds or celsius.")]


class UnitConversion(TypedDict):
    """The amount in the other unit, as decimal text; `is_exact` is false if it is rounded."""

    amount: str
    from_unit: str
    result: str
    to_unit: str
    is_exact: bool


class UnitComparison(TypedDict):
    """True or false, and the first amount in the unit of the second one."""

    holds: bool
    converted: str


class UnitTools:
    """The tools."""

    async def convert_units(
        self,
        amount: AmountArgument,
        from_unit: UnitName,
        to_unit: Annotated[str, Field(description="A unit of the same kind.")],
        more_amount: MoreAmount = None,
        more_unit: Annotated[
            str | None, Field(description="The smaller unit, by default inches behind feet.")
        ] = None,
        rest_unit: Annotated[
            str | None,
            Field(description="A smaller unit for what is left over: 2 hours and 15 minutes."),
        ] = None,
    ) -> Annotated[CallToolResult, UnitConversion]:
        """Convert a length, mass, time, volume, area, speed, temperature or size of data."""
        return await call_result(
            self._convert_units(
                _read_measure(amount, from_unit, more_amount, more_unit), to_unit, rest_unit
            )
        )

    async def compare_units(
        self,
        amount: AmountArgument,
        unit: UnitName,
        relation: Literal["more", "less", "equal", "between", "which is more", "which is less"],
        other_amount: AmountArgument,
        other_unit: UnitName,
        end_amount: Annotated[
            str | float | None, Field(description="The other end of the range, for `between`.")
        ] = None,
    ) -> Annotated[CallToolResult, UnitComparison]:
        """Say whether an amount is more or less than one in another unit, or which of both is."""
        return await call_result(
            self._compare_units((amount, unit), relation, (other_amount, other_unit), end_amount)
        )

    async def _convert_units(
        self, measure: list[tuple[str, str]], to_unit: str, rest_unit: str | None
    ) -> ToolAnswer:
        amounts = [(_parse_amount(amount), unit) for amount, unit in measure]
        conversion = units.convert(amounts, to_unit, rest_unit=rest_unit)
        data = {name: value for name, value in asdict(conversion).items() if name != "value"}
        return ToolAnswer(conversion.describe(), data)

    async def _compare_units(
        self,
        first: tuple[str | float, str],
        relation: str,
        second: tuple[str | float, str],
        end: str | float | None,
    ) -> ToolAnswer:
        amount, other = _parse_amount(str(first[0])), _parse_amount(str(second[0]))
        conversion = units.convert([(amount, first[1])], second[1])
        if relation == "between":
            if end is None:
                raise InvalidArgumentError("end_amount", "'between' needs two amounts, its ends.")
            low, high = sorted((other, _parse_amount(str(end))))
            holds = low <= conversion.value <= high
        else:
            holds = _RELATIONS[relation.removeprefix("which is ")](conversion.value, other)
        verdict = "Yes" if holds else "No"
        if relation.startswith("which"):
            chosen = [(amount, first[1])] if holds else [(other, second[1])]
            verdict = "They are the same" if conversion.value == other else units.write(chosen)
        return ToolAnswer(
            f"{verdict}, {conversion.describe()}.",
            {"holds": holds, "converted": conversion.result},
        )


def _read_measure(
    amount: str | float, unit: str, more_amount: str | float | None, more_unit: str | None
) -> list[tuple[str, str]]:
    """Return the amounts that are one together, each with its unit: "5 feet 11 inches"."""
    measure = [(str(amount), unit)]
    if more_amount is not None:
        measure.append((str(more_amount), more_unit or units.find_smaller(unit)))
    return measure


def _parse_amount(text: str) -> Fraction:
    try:
        if len(text) > _MAX_AMOUNT_CHARS:
            raise ValueError
        # "2 1/2" is a whole number and a fraction.
        mixed = _MIXED_AMOUNT.fullmatch(text.strip())
        if mixed:
            return int(mixed[1]) + Fraction(mixed[2])
        return Fraction(text.replace(",", "").strip())
    except (ValueError, ZeroDivisionError):
        raise InvalidArgumentError(
            "amount", f"{text[:_MAX_AMOUNT_CHARS]!r} is not an amount: take a number such as 3.5."
        ) from None
