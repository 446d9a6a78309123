"""The queries of the committed Grafana dashboards."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from harness.deploy.image import ROOT

FOLDER: Final = ROOT / "deploy/grafana/dashboards"
# Grafana's own variables.
_TIMES: Final = {"$__rate_interval": "1m", "$__range": "1h"}


@dataclass(frozen=True, slots=True)
class DashboardQuery:
    """A query of a panel."""

    dashboard: str
    panel: str
    expression: str
    legend: str
    choices: frozenset[str]
    """The variables of the dashboard that its user chooses values of."""

    def filled(self) -> str:
        """Return the expression as Grafana sends it when everything is chosen."""
        return fill(self.expression, self.choices)


def fill(expression: str, choices: frozenset[str]) -> str:
    """Replace the variables of an expression."""
    values = {**_TIMES, **{f"${name}": ".*" for name in choices}}
    for name in sorted(values, key=len, reverse=True):
        expression = expression.replace(name, values[name])
    assert "$" not in expression, expression
    return expression


def read_dashboards() -> dict[str, Mapping[str, Any]]:
    """Return the dashboards by the names of their files."""
    return {
        file.name: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(FOLDER.glob("*.json"))
    }


def read_queries() -> list[DashboardQuery]:
    """Return the queries of all panels."""
    return [
        query for name, board in read_dashboards().items() for query in _queries_of(name, board)
    ]


def _queries_of(name: str, board: Mapping[str, Any]) -> Iterator[DashboardQuery]:
    choices = frozenset(variable["name"] for variable in board["templating"]["list"])
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield DashboardQuery(
                name, panel["title"], target["expr"], target["legendFormat"], choices
            )
