from datetime import date
from decimal import Decimal

import pytest
from mcp_types import CallToolResult, TextContent

from trunkline.errors import InvalidArgumentError
from trunkline_agents.currency.names import resolve_currency
from trunkline_agents.currency.rates import Period, RateTable, load_rates
from trunkline_agents.currency.server import CurrencyTools

LINES = [
    "Date,USD,JPY,RUB,",
    "2024-01-05,1.0921,158.5,N/A,",
    "2024-01-04,1.0953,157.9,N/A,",
    "2022-03-01,1.1162,128.1,117.201,",
    "2022-02-28,1.1199,129.3,115.4842,",
]


def test_a_rate_is_exact() -> None:
    rate = RateTable(LINES).get_rate("USD", "JPY", date(2024, 1, 4))
    assert rate.factor == Decimal("157.9") / Decimal("1.0953")
    assert rate.day == date(2024, 1, 4)
    assert RateTable(LINES).get_rate("EUR", "USD", date(2024, 1, 4)).factor == Decimal("1.0953")


def test_the_latest_rate_is_used_without_a_date() -> None:
    assert RateTable(LINES).get_rate("EUR", "USD", None).day == date(2024, 1, 5)


def test_a_day_without_rates_uses_the_last_rates_before_it() -> None:
    assert RateTable(LINES).get_rate("EUR", "RUB", date(2022, 3, 1)).day == date(2022, 3, 1)
    table = RateTable([*LINES[:2], *LINES[3:]])
    assert table.get_rate("EUR", "USD", date(2022, 3, 6)).day == date(2022, 3, 1)


@pytest.mark.parametrize("day", [date(2022, 2, 27), date(2024, 1, 6), date(1900, 1, 1)])
def test_a_date_outside_the_data_is_refused_with_the_range(day: date) -> None:
    with pytest.raises(InvalidArgumentError, match="from 2022-02-28 to 2024-01-05"):
        RateTable(LINES).get_rate("EUR", "USD", day)


def test_a_discontinued_currency_is_refused_with_its_range() -> None:
    table = RateTable(LINES)
    assert table.get_period("RUB") == Period(date(2022, 2, 28), date(2022, 3, 1))
    with pytest.raises(InvalidArgumentError, match=r"RUB.*from 2022-02-28 to 2022-03-01"):
        table.get_rate("USD", "RUB", None)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("usd", "USD"),
        ("Dollars", "USD"),
        ("euros", "EUR"),
        ("€", "EUR"),
        ("swiss  francs", "CHF"),
        ("yen", "JPY"),
        ("pounds", "GBP"),
    ],
)
def test_currencies_are_resolved_by_name_and_sign(name: str, code: str) -> None:
    assert resolve_currency(name, load_rates().currencies) == code


def test_an_unknown_currency_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'XYZ' is not a currency.*Known are: AUD, "):
        resolve_currency("XYZ", load_rates().currencies)
    with pytest.raises(InvalidArgumentError, match="Did you mean USD"):
        resolve_currency("USDD", load_rates().currencies)


async def convert(
    amount: str | float, source: str, target: str, date: str | None = None
) -> CallToolResult:
    return await CurrencyTools().convert(amount, source, target, date)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


def data_of(result: CallToolResult) -> dict[str, str]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.parametrize(
    ("source", "target", "result"),
    [("GBP", "EUR", "1.1684"), ("EUR", "JPY", "162.82"), ("EUR", "IDR", "17000.09")],
)
async def test_the_worth_of_one_unit_is_a_rate(source: str, target: str, result: str) -> None:
    assert data_of(await convert(1, source, target, "2024-03-01"))["result"] == result


async def test_a_weekend_uses_the_rate_of_friday_and_shows_that() -> None:
    text = text_of(await convert("1,000.50", "dollars", "euros", "2020-03-01"))
    assert text.startswith("1000.50 USD = ")
    assert text.endswith("(ECB rate of 2020-02-28, the last before 2020-03-01)")


async def test_a_small_result_keeps_its_digits() -> None:
    result = data_of(await convert(1, "IDR", "EUR", "2020-03-02"))["result"]
    assert result.startswith("0.0000")
    assert len(result.lstrip("0.")) == 4


@pytest.mark.parametrize(
    "amount", ["abc", "-1", "NaN", "1e30", "Infinity", "9" * 100, 1e300, float("inf")]
)
async def test_an_amount_is_a_number_of_usable_size(amount: str | float) -> None:
    refused = await convert(amount, "USD", "EUR")
    assert refused.is_error
    assert "is not an amount" in text_of(refused)


async def test_a_date_in_another_format_is_refused() -> None:
    refused = await convert(1, "USD", "EUR", "March 2")
    assert refused.is_error
    assert "write it as 2020-03-02" in text_of(refused)
    assert refused.meta is not None
    assert refused.meta["trunkline/mendable"] is True
