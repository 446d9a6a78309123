"""The tokens and the cost of this day and month, and their budgets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from trunkline.cli.terminal import print_table
from trunkline.core.settings import LimitSettings, Settings
from trunkline.processes.usage import read_usage
from trunkline.tasks.budgets import end_of_period, find_budget
from trunkline.tasks.usage_store import Subject, Usage, periods

_HEADERS = ("FOR", "PERIOD", "TOKENS", "BUDGET", "COST", "BUDGET")


def print_reports(reports: Sequence[dict[str, Any]]) -> None:
    """Print the usage of each subject as a table."""
    if reports:
        print_table(_HEADERS, [_format_report(report) for report in reports])
    else:
        print("no usage and no budgets; usage is counted if trunkline.toml has budgets in [limits]")


def build_reports(settings: Settings, now: datetime) -> list[dict[str, Any]]:
    """Return the usage of the mesh in the current day and month of UTC.

    Accounts, keys and models with a budget are listed even if they used nothing.

    Raises:
        ConfigurationError: the settings are wrong.
        JournalUnavailableError: the usage can't be read.
    """
    limits = settings.limits
    used = {(subject, period): usage for period, subject, usage in read_usage(settings, now)}
    subjects = sorted({subject for subject, _ in used} | _list_subjects(limits))
    day, month = periods(now)
    return [
        _build_report(limits, subject, period, used.get((subject, period), Usage()), now)
        for subject in subjects
        for period in (day, month)
    ]


def _list_subjects(limits: LimitSettings) -> set[Subject]:
    """Return the accounts, keys and models that have a budget in the settings."""
    return {
        *(Subject(name) for name, own in limits.account.items() if own.is_budget),
        *(Subject(name, key) for name, own in limits.account.items() for key in own.key),
        *(Subject(model=model) for model in limits.model),
    }


def _build_report(
    limits: LimitSettings, subject: Subject, period: str, usage: Usage, now: datetime
) -> dict[str, Any]:
    is_day = period == periods(now)[0]
    budget = find_budget(limits, subject)
    tokens, cost = (None, None)
    if budget is not None:
        tokens = budget.day_tokens if is_day else budget.month_tokens
        cost = budget.day_cost if is_day else budget.month_cost
    return {
        **subject._asdict(),
        "period": period,
        "ends": end_of_period(now, is_day=is_day).isoformat(),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "tokens": usage.tokens,
        "token_budget": tokens,
        "cost": usage.cost,
        "cost_budget": cost,
    }


def _format_report(report: dict[str, Any]) -> tuple[str, ...]:
    subject = Subject(report["account"], report["caller"], report["model"])
    return (
        str(subject),
        report["period"],
        str(report["tokens"]),
        _format_budget(report["token_budget"]),
        f"{report['cost']:.4g}",
        _format_budget(report["cost_budget"]),
    )


def _format_budget(budget: float | None) -> str:
    # Tokens are whole numbers, which `:g` would round.
    return "-" if budget is None else f"{budget:.15g}"
