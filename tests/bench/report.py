"""Prints what was found: medians and spread, and where and with what it was measured."""

import os
import platform
import sqlite3
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.rows import LONG, RATE, SHORT, Figures, Row
from bench.systems import FLOOR, PEER, SERVICES, TOGETHER

Found = Mapping[str, Sequence[Figures]]
"""The figures of a row, by system."""

_Line = tuple[str, Sequence[str], str]
"""What, a cell for each column, and the aim."""

COLUMNS = (SERVICES, TOGETHER, PEER, FLOOR)
_NONE = "-"
_PACKAGES = ("grpcio", "protobuf", "a2a-sdk", "uvloop", "httptools", "uvicorn")


def where(load_before: float) -> str:
    """Return a line about the machine and the versions."""
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    found += [f"{name} {_version(name)}" for name in _PACKAGES]
    now = datetime.now(UTC)
    return (
        f"{now:%Y-%m-%d %H:%M} UTC, commit {_commit()}, {platform.machine()} {platform.system()}, "
        f"{os.cpu_count()} cores, load before {load_before:.1f}, after {os.getloadavg()[0]:.1f}\n"
        + ", ".join(found)
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        said = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True)
        return said.stdout.strip()

    is_changed = git("status", "--porcelain", "--", "../../services", "../../bridge")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if is_changed else "")


def table(rows: Sequence[tuple[Row, Found]], systems: Sequence[str]) -> str:
    """Return all rows as one table in Markdown; systems are its columns."""
    columns = [name for name in COLUMNS if name in systems]
    lines = [
        "| shape | figure | " + " | ".join(columns) + " | aim |",
        "|" + "---|" * (len(columns) + 3),
    ]
    for row, found in rows:
        lines += _lines(row, found, columns)
    return "\n".join(lines)


def _lines(row: Row, found: Found, columns: Sequence[str]) -> list[str]:
    lines = _switched(row, found, columns) if row.switched else _plain(row, found, columns)
    names = [row.name, *[""] * (len(lines) - 1)]
    return [
        f"| {name} | {what} | {' | '.join(cells)} | {aim} |"
        for name, (what, cells, aim) in zip(names, lines, strict=True)
    ]


def _plain(row: Row, found: Found, columns: Sequence[str]) -> list[_Line]:
    """A line for each figure, and one for each aim that is a ratio."""
    lines: list[_Line] = []
    for figure in next((runs[0] for runs in found.values() if runs), {}):
        cells = [_cell(found.get(system, ()), figure) for system in columns]
        aim = row.aims.get(figure, "")
        if not aim.endswith(("x", "higher")):
            lines.append((figure, cells, aim))
            continue
        lines.append((figure, cells, ""))
        if figure == RATE and found.get(SERVICES) and found.get(PEER):
            against = _median(found[PEER], RATE)
            ratios = [_ratio(found.get(system, ()), RATE, against) for system in columns]
            lines.append(("the same against a2a-sdk", ratios, aim))
        elif figure == LONG:
            ratios = [
                _ratio(runs, LONG, _median(runs, SHORT)) if (runs := found.get(system)) else _NONE
                for system in columns
            ]
            lines.append(("the same against short", ratios, aim))
    return lines


def _switched(row: Row, found: Found, columns: Sequence[str]) -> list[_Line]:
    """What something costs that can be turned off: on, off, and each repetition's ratio."""
    pairs = [row.switched.get(column, ("", "")) for column in columns]
    lines: list[_Line] = []
    for figure, aim in row.aims.items():
        ratios = []
        for on, off in pairs:
            runs = zip(found.get(on, ()), found.get(off, ()), strict=False)
            each = [with_it[figure] / without[figure] for with_it, without in runs]
            ratios.append(_spread(each, "x") if each else _NONE)
        lines += [
            (f"{figure}, on", [_cell(found.get(on, ()), figure) for on, _ in pairs], ""),
            (f"{figure}, off", [_cell(found.get(off, ()), figure) for _, off in pairs], ""),
            ("on against off, of each repetition", ratios, aim),
        ]
    return lines


def _ratio(runs: Sequence[Figures], figure: str, against: float) -> str:
    return f"{_median(runs, figure) / against:.2f}x" if runs else _NONE


def _median(runs: Sequence[Figures], figure: str) -> float:
    return statistics.median(run[figure] for run in runs)


def _cell(runs: Sequence[Figures], figure: str) -> str:
    values = [run[figure] for run in runs if figure in run]
    return _spread(values) if values else _NONE


def _spread(values: Sequence[float], unit: str = "") -> str:
    """The median, the lowest and the highest."""
    shown = (statistics.median(values), min(values), max(values))
    middle, low, high = (_number(value) + unit for value in shown)
    return f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 5 else f"{value:.2f}"
