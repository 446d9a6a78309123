"""The currency tools over MCP: convert and list_currencies."""

from datetime import date as Date  # noqa: N812 - `date` is an argument of the tool
from decimal import ROUND_HALF_UP, Decimal, DivisionByZero, InvalidOperation
from functools import cache
from typing import Annotated, Any

from mcp.server import MCPServer
from pydantic import Field
from typing_extensions import TypedDict

from trunkline.errors import InvalidArgumentError
from trunkline_agents.currency import patterns
from trunkline_agents.currency.names import resolve_currency
from trunkline_agents.currency.rates import RateTable, load_rates
from trunkline_agents.mcp_server import (
    READ_ONLY,
    ToolAnswer,
    build_tool_server,
    run_stdio_server,
    tool,
)

NAME = "trunkline-mcp-currency"
MAX_AMOUNT = Decimal(10) ** 15
_CENTS = Decimal("0.01")
_SMALL_DIGITS = 4
_RATE_DIGITS = 5
_MAX_AMOUNT_CHARS = 40


class Conversion(TypedDict):
    """Amounts and rate as exact decimal text; `rate_date` is the day of the ECB's rate."""

    amount: str
    from_currency: str
    to_currency: str
    result: str
    rate: str
    rate_date: str


class Currencies(TypedDict):
    """The codes of all currencies with rates, and the days that the rates cover."""

    currencies: list[str]
    first_date: str
    last_date: str


Currency = Annotated[str, Field(description="A code such as USD, or a name such as euros or yen.")]


class CurrencyTools:
    """The tools. The first call loads the rates, so that an idle server stays small."""

    def __init__(self) -> None:
        self._rates = cache(load_rates)

    @tool(Conversion)
    async def convert(
        self,
        amount: Annotated[str | float, Field(description="How much, as a number.")],
        from_currency: Currency,
        to_currency: Currency,
        date: Annotated[
            str | None,
            Field(description="The day of the rate, YYYY-MM-DD; by default the latest there is."),
        ] = None,
    ) -> ToolAnswer:
        """Convert an amount of money at the European Central Bank's reference rate of a day."""
        rates = self._rates()
        money = _parse_amount(amount)
        source, target = (
            resolve_currency(name, rates.currencies) for name in (from_currency, to_currency)
        )
        day = None if date is None else _parse_day(date)
        rate = rates.get_rate(source, target, day)
        result = _round(money * rate.factor, is_rate=money == 1)
        text = f"{money:f} {source} = {result:f} {target} (ECB rate of {rate.day}"
        text += f", the last before {day})" if day and day != rate.day else ")"
        return ToolAnswer(
            text,
            {
                "amount": f"{money:f}",
                "from_currency": source,
                "to_currency": target,
                "result": f"{result:f}",
                "rate": f"{rate.factor:f}",
                "rate_date": rate.day.isoformat(),
            },
        )

    @tool(Currencies)
    async def list_currencies(self) -> ToolAnswer:
        """List the currencies that can be converted, and the days with rates."""
        rates: RateTable = self._rates()
        codes, period = rates.currencies, rates.period
        return ToolAnswer(
            f"{len(codes)} currencies, with ECB rates from {period.first} to {period.last} "
            f"(some only for a part of it): {', '.join(codes)}.",
            {
                "currencies": list(codes),
                "first_date": period.first.isoformat(),
                "last_date": period.last.isoformat(),
            },
        )


def _parse_amount(amount: str | float) -> Decimal:
    # JSON does not distinguish 100 and 100.0; the text is 100.
    is_whole = isinstance(amount, float) and amount.is_integer()
    text = str(int(amount) if is_whole else amount).strip()
    try:
        whole, _, under = text.replace(",", "").partition("/")
        money = Decimal(whole) / Decimal(under or 1)
    except (InvalidOperation, DivisionByZero):
        money = Decimal("NaN")
    if not (len(text) <= _MAX_AMOUNT_CHARS and money.is_finite() and 0 <= money <= MAX_AMOUNT):
        raise InvalidArgumentError(
            "amount",
            f"{text[:_MAX_AMOUNT_CHARS]!r} is not an amount: take a number from 0 to 10^15.",
        )
    return money


def _parse_day(text: str) -> Date:
    try:
        year, month, day = (int(part) for part in text.strip().split("-"))
        return Date(year, month, day)
    except ValueError:
        raise InvalidArgumentError(
            "date", f"{text[:_MAX_AMOUNT_CHARS]!r} is not a date: write it as 2020-03-02."
        ) from None


def _round(money: Decimal, *, is_rate: bool = False) -> Decimal:
    """Round to cents; amounts below one unit are rounded to four significant digits.

    The value of one unit is a rate, and has five significant digits as the ECB's rates.
    """
    is_large = money == 0 or money >= 1
    if is_large and not is_rate:
        return money.quantize(_CENTS, rounding=ROUND_HALF_UP)
    places = min(money.adjusted() - (_RATE_DIGITS if is_large else _SMALL_DIGITS) + 1, -2)
    return money.quantize(Decimal(1).scaleb(places), rounding=ROUND_HALF_UP)


def build_server() -> MCPServer[Any]:
    """Return the MCP server with its tools."""
    tools = CurrencyTools()
    return build_tool_server(
        NAME,
        (
            (tools.list_currencies, "List currencies", READ_ONLY, patterns.LIST),
            (tools.convert, "Convert money", READ_ONLY, patterns.CONVERT),
        ),
        title="Currency",
        instructions="Converts money at the ECB's daily reference rates since 1999. No network.",
    )


def main() -> None:
    """Run the console script `trunkline-mcp-currency`."""
    run_stdio_server(lambda: build_server().run_stdio_async(), service_name=NAME)
