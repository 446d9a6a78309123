"""Renders the results: medians and ranges, the machine and the versions."""

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
from bench.systems import FLOOR, PEER, SERVICES, TOGETHER, UNARY_ONLY

Results = Mapping[str, Sequence[Figures]]
"""The figures of a row, by system."""

_Line = tuple[str, Sequence[str], str]
"""The name, a cell for each column, and the aim."""

COLUMNS = (SERVICES, TOGETHER, PEER, FLOOR, *UNARY_ONLY)
_NONE = "-"
_PACKAGES = ("grpcio", "protobuf", "a2a-sdk", "uvloop", "httptools", "uvicorn")


def describe_environment(load_before: float) -> str:
    """Return a line about the machine and the versions."""
    results = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    results += [f"{name} {_version(name)}" for name in _PACKAGES]
    now = datetime.now(UTC)
    return (
        f"{now:%Y-%m-%d %H:%M} UTC, commit {_commit()}, {platform.machine()} {platform.system()}, "
        f"{os.cpu_count()} cores, load before {load_before:.1f}, after {os.getloadavg()[0]:.1f}\n"
        + ", ".join(results)
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    def git(*words: str) -> str:
        here = Path(__file__).parent
        process = subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, check=True
        )
        return process.stdout.strip()

    is_changed = git("status", "--porcelain", "--", "../../services", "../../bridge")
    return git("rev-parse", "--short", "HEAD") + (" with changes" if is_changed else "")


def table(rows: Sequence[tuple[Row, Results]], systems: Sequence[str]) -> str:
    """Return all rows as one table in Markdown; systems are its columns."""
    columns = [
        name
        for name in COLUMNS
        if name in systems
        or any(row.switched.get(name, ("",))[0] in results for row, results in rows)
    ]
    lines = [
        "| shape | figure | " + " | ".join(columns) + " | aim |",
        "|" + "---|" * (len(columns) + 3),
    ]
    for row, results in rows:
        lines += _lines(row, results, columns)
    return "\n".join(lines)


def _lines(row: Row, results: Results, columns: Sequence[str]) -> list[str]:
    lines = (
        _switched_lines(row, results, columns)
        if row.switched
        else _plain_lines(row, results, columns)
    )
    names = [row.name, *[""] * (len(lines) - 1)]
    return [
        f"| {name} | {label} | {' | '.join(cells)} | {aim} |"
        for name, (label, cells, aim) in zip(names, lines, strict=True)
    ]


def _plain_lines(row: Row, results: Results, columns: Sequence[str]) -> list[_Line]:
    """Return a line for each figure, and one for each aim that is a ratio."""
    lines: list[_Line] = []
    for figure in next((runs[0] for runs in results.values() if runs), {}):
        cells = [_cell(results.get(system, ()), figure) for system in columns]
        aim = row.aims.get(figure, "")
        if not aim.endswith(("x", "higher")):
            lines.append((figure, cells, aim))
            continue
        lines.append((figure, cells, ""))
        if figure == RATE and results.get(SERVICES) and results.get(PEER):
            baseline = _median(results[PEER], RATE)
            ratios = [_ratio(results.get(system, ()), RATE, baseline) for system in columns]
            lines.append(("the same against a2a-sdk", ratios, aim))
        elif figure == LONG:
            ratios = [
                _ratio(runs, LONG, _median(runs, SHORT)) if (runs := results.get(system)) else _NONE
                for system in columns
            ]
            lines.append(("the same against short", ratios, aim))
    return lines


def _switched_lines(row: Row, results: Results, columns: Sequence[str]) -> list[_Line]:
    """Return the lines of a switchable feature: on, off, and the ratio of each repetition."""
    pairs = [row.switched.get(column, ("", "")) for column in columns]
    lines: list[_Line] = []
    for figure, aim in row.aims.items():
        ratios = []
        for on, off in pairs:
            runs = zip(results.get(on, ()), results.get(off, ()), strict=False)
            ratios_of_runs = [on_run[figure] / off_run[figure] for on_run, off_run in runs]
            ratios.append(_spread(ratios_of_runs, "x") if ratios_of_runs else _NONE)
        lines += [
            (f"{figure}, on", [_cell(results.get(on, ()), figure) for on, _ in pairs], ""),
            (f"{figure}, off", [_cell(results.get(off, ()), figure) for _, off in pairs], ""),
            ("on against off, of each repetition", ratios, aim),
        ]
    return lines


def _ratio(runs: Sequence[Figures], figure: str, baseline: float) -> str:
    return f"{_median(runs, figure) / baseline:.2f}x" if runs else _NONE


def _median(runs: Sequence[Figures], figure: str) -> float:
    return statistics.median(run[figure] for run in runs)


def _cell(runs: Sequence[Figures], figure: str) -> str:
    values = [run[figure] for run in runs if figure in run]
    return _spread(values) if values else _NONE


def _spread(values: Sequence[float], unit: str = "") -> str:
    """Return the median, the lowest and the highest."""
    figures_ = (statistics.median(values), min(values), max(values))
    middle, low, high = (_number(value) + unit for value in figures_)
    return f"{middle} ({low} to {high})"


def _number(value: float) -> str:
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 5 else f"{value:.2f}"
