"""The Grafana dashboards of a mesh.

`python deploy/grafana/dashboards.py` writes them to `deploy/grafana/dashboards`. A test compares
those files with this module, and the metrics and labels of each query with the instruments.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    DataSourceRef,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
)

FOLDER: Final = Path(__file__).resolve().parent / "dashboards"
"""The files. Grafana shows them in the folder Trunkline."""
_TAG: Final = "trunkline"
_DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

Query: TypeAlias = tuple[str, str]
"""An expression, and the legend of its series."""
Labels: TypeAlias = str | Sequence[str]

_AGENT: Final = 'gen_ai_agent_name=~"$agent"'


def select(metric: str, *matchers: str) -> str:
    """Return the selector of a metric in the jobs that the dashboard shows."""
    matchers = ('job=~"$job"', *matchers)
    return f"{metric}{{{', '.join(matchers)}}}"


def total(metric: str, *matchers: str, by: Labels = ()) -> Query:
    """Query the sum of a gauge over all processes."""
    return _sum(select(metric, *matchers), by), _legend(by)


def rate(metric: str, *matchers: str, by: Labels = ()) -> Query:
    """Query how fast a counter grows a second, over all processes."""
    return _sum(f"rate({select(metric, *matchers)}[$__rate_interval])", by), _legend(by)


def increase(metric: str, *matchers: str, by: Labels = (), window: str = "$__range") -> Query:
    """Query the growth of a counter in a window, over all processes."""
    return _sum(f"increase({select(metric, *matchers)}[{window}])", by), _legend(by)


def quantile(number: float, histogram: str, *matchers: str, by: Labels = ()) -> Query:
    """Query a quantile of a histogram, over all processes."""
    labels = ("le", *_as_labels(by))
    buckets = f"rate({select(f'{histogram}_bucket', *matchers)}[$__rate_interval])"
    legend = " ".join((f"p{number * 100:g}", _legend(by))).strip()
    return f"histogram_quantile({number:g}, {_sum(buckets, labels)})", legend


def quantiles(histogram: str, *matchers: str, by: Labels = ()) -> list[Query]:
    """Query the median and two higher quantiles of a histogram."""
    return [quantile(number, histogram, *matchers, by=by) for number in (0.5, 0.95, 0.99)]


def ratio(part: Query, whole: Query) -> Query:
    """Query the share of a part in the whole; 0 while there is neither."""
    return f"({part[0]} or 0 * {whole[0]}) / ({whole[0]} > 0)", part[1] or whole[1]


def or_zero(query: Query) -> Query:
    """Query 0 where a gauge has no series, as for agents without open tasks."""
    return f"{query[0]} or vector(0)", query[1]


def _sum(vector: str, by: Labels) -> str:
    labels = _as_labels(by)
    return f"sum by ({', '.join(labels)}) ({vector})" if labels else f"sum({vector})"


def _as_labels(labels: Labels) -> tuple[str, ...]:
    return (labels,) if isinstance(labels, str) else tuple(labels)


def _legend(by: Labels) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in _as_labels(by))


def number(title: str, query: Query, unit: str = units.Short, decimals: int = 0) -> stat.Panel:
    """Make a panel with one number."""
    return (
        stat.Panel()
        .title(title)
        .datasource(_DATASOURCE)
        .unit(unit)
        .decimals(decimals)
        .color_mode(BigValueColorMode.NONE)
        .span(4)
        .height(4)
        .with_target(_target(query, 0))
    )


def graph(
    title: str,
    queries: Query | Iterable[Query],
    unit: str = units.Short,
    description: str = "",
    *,
    is_stacked: bool = False,
) -> timeseries.Panel:
    """Make a panel with lines over time."""
    listed = [queries] if isinstance(queries, tuple) else list(queries)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(_DATASOURCE)
        .unit(unit)
        .min(0)
        .span(8)
        .height(8)
        .fill_opacity(10)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.LIST)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    if is_stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for position, query in enumerate(listed):
        panel = panel.with_target(_target(query, position))
    return panel


def _target(query: Query, position: int) -> prometheus.Dataquery:
    expression, legend = query
    target = prometheus.Dataquery().ref_id(chr(ord("A") + position)).datasource(_DATASOURCE)
    # A number for the whole time of the dashboard needs no line.
    target = target.instant() if "$__range]" in expression else target.range()
    return (
        target.expr(expression)
        .legend_format(legend or "__auto")
        # The trace of a measurement, a click away.
        .exemplar(exemplar="_bucket" in expression)
    )


def _new_dashboard(uid: str, title: str, description: str) -> dashboard.Dashboard:
    links = dashboard.DashboardLink("Trunkline").type(DashboardLinkType.DASHBOARDS)
    return (
        dashboard.Dashboard(title)
        .uid(f"trunkline-{uid}")
        .description(description)
        .tags([_TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(links.tags([_TAG]).as_dropdown(as_dropdown=True).keep_time(keep_time=True))
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Source").type("prometheus")
        )
        .with_variable(_choice("job", "Job", "target_info", "job"))
    )


def _choice(name: str, title: str, metric: str, label: str) -> dashboard.QueryVariable:
    """Make a variable of the dashboard with the values of a label; all by default."""
    return (
        dashboard.QueryVariable(name)
        .label(title)
        .datasource(_DATASOURCE)
        .query(f"label_values({metric}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _add(
    board: dashboard.Dashboard,
    rows: Mapping[str, Sequence[stat.Panel | timeseries.Panel]],
) -> dashboard.Dashboard:
    for title, panels in rows.items():
        board = board.with_row(dashboard.Row(title))
        for panel in panels:
            board = board.with_panel(panel)
    return board


def mesh_overview() -> dashboard.Dashboard:
    """Build the dashboard of the whole mesh: requests, calls, journals, peers and processes."""
    errors = rate("http_server_request_duration_seconds_count", 'http_response_status_code=~"5.."')
    requests = rate("http_server_request_duration_seconds_count")
    calls = "rpc_client_call_duration_seconds"
    return _add(
        _new_dashboard("mesh", "Trunkline: mesh", "Requests, calls, journals and processes."),
        {
            "Now": [
                number("Processes on the mesh", total("trunkline_hosts")),
                number("Targets down", or_zero((f"count({select('up')} == 0)", ""))),
                number("Open tasks", or_zero(total("trunkline_tasks_open"))),
                number("Turns running", or_zero(total("trunkline_admission_running"))),
                number(
                    "Breakers open",
                    or_zero(total("trunkline_breakers", 'trunkline_breaker_state="open"')),
                ),
                number("Errors of requests", ratio(errors, requests), units.PercentUnit, 2),
            ],
            "Requests to the bridge": [
                graph(
                    "Requests",
                    rate("http_server_request_duration_seconds_count", by="http_route"),
                    units.RequestsPerSecond,
                ),
                graph(
                    "Responses",
                    rate(
                        "http_server_request_duration_seconds_count",
                        by="http_response_status_code",
                    ),
                    units.RequestsPerSecond,
                    is_stacked=True,
                ),
                graph(
                    "Duration",
                    quantiles("http_server_request_duration_seconds"),
                    units.Seconds,
                    "A stream counts when it ends.",
                ),
            ],
            "Calls between processes": [
                graph("Calls", rate(f"{calls}_count", by="rpc_method"), units.RequestsPerSecond),
                graph(
                    "Failed calls",
                    rate(f"{calls}_count", 'error_type!=""', by=("rpc_method", "error_type")),
                    units.RequestsPerSecond,
                ),
                graph("Duration (p95)", quantile(0.95, calls, by="rpc_method"), units.Seconds),
            ],
            "Journals": [
                graph(
                    "Events",
                    rate("trunkline_journal_events_total", by="instance"),
                    units.EventsPerSecond,
                    is_stacked=True,
                ),
                graph(
                    "Commit", quantiles("trunkline_journal_commit_duration_seconds"), units.Seconds
                ),
                graph(
                    "Commit lag",
                    quantiles("trunkline_journal_commit_lag_seconds"),
                    units.Seconds,
                    "From the first write to the moment when readers see it.",
                ),
                graph(
                    "Failed commits",
                    increase(
                        "trunkline_journal_commits_failed_total",
                        by="error_type",
                        window="$__rate_interval",
                    ),
                ),
                graph(
                    "Lost leases, failed renewals",
                    [
                        _named("lost", increase("trunkline_leases_lost_total", window="5m")),
                        increase(
                            "trunkline_lease_renewals_total",
                            'error_type!=""',
                            by="error_type",
                            window="5m",
                        ),
                    ],
                    description="In five minutes.",
                ),
                graph(
                    "Takeovers",
                    [
                        _named("takeovers", increase("trunkline_takeovers_total", window="5m")),
                        *quantiles("trunkline_takeover_time_seconds"),
                    ],
                    description="In five minutes, and for how many seconds a journal had no host.",
                ),
            ],
            "Peers": [
                graph("Trunks", total("trunkline_trunks", by=("instance", "trunkline_trunk_role"))),
                graph("Open calls on trunks", total("trunkline_trunk_calls", by="instance")),
                graph(
                    "Openings of breakers",
                    increase("trunkline_breakers_opened_total", by="trunkline_peer", window="5m"),
                    description="In five minutes.",
                ),
            ],
            "Processes": [
                graph(
                    "CPU",
                    (
                        f"rate({select('process_cpu_seconds_total')}[$__rate_interval])",
                        "{{instance}}",
                    ),
                    units.PercentUnit,
                    "1 is one core.",
                ),
                graph(
                    "Memory",
                    (select("process_resident_memory_bytes"), "{{instance}}"),
                    units.BytesIEC,
                ),
                graph("Open files", (select("process_open_fds"), "{{instance}}")),
            ],
        },
    )


def agents_and_tasks() -> dashboard.Dashboard:
    """Build the dashboard of agents: tasks, turns, admission, tools and webhooks."""
    agent = "gen_ai_agent_name"
    tool = "mcp_client_operation_duration_seconds"
    failed = rate("trunkline_tasks_ended_total", _AGENT, 'trunkline_task_state="failed"', by=agent)
    board = _new_dashboard("agents", "Trunkline: agents and tasks", "Tasks, turns, and tools.")
    return _add(
        board.with_variable(_choice("agent", "Agent", "trunkline_tasks_created_total", agent)),
        {
            "Tasks": [
                graph("Created", rate("trunkline_tasks_created_total", _AGENT, by=agent)),
                graph(
                    "Ended, by state",
                    rate("trunkline_tasks_ended_total", _AGENT, by="trunkline_task_state"),
                    is_stacked=True,
                ),
                graph(
                    "Share of failed tasks",
                    ratio(failed, rate("trunkline_tasks_ended_total", _AGENT, by=agent)),
                    units.PercentUnit,
                ),
                graph(
                    "Open, by state",
                    total("trunkline_tasks_open", _AGENT, by="trunkline_task_state"),
                    is_stacked=True,
                ),
                graph("Open, by agent", total("trunkline_tasks_open", _AGENT, by=agent)),
                graph(
                    "Duration (p95)",
                    quantile(0.95, "trunkline_task_duration_seconds", _AGENT, by=agent),
                    units.Seconds,
                    "From creation to end, with all that the task waited for.",
                ),
            ],
            "Turns": [
                graph(
                    "Duration (p95)",
                    quantile(0.95, "gen_ai_invoke_agent_duration_seconds", _AGENT, by=agent),
                    units.Seconds,
                    "The time that an agent works on one message.",
                ),
                graph(
                    "Failed turns",
                    rate(
                        "gen_ai_invoke_agent_duration_seconds_count",
                        _AGENT,
                        'error_type!=""',
                        by=(agent, "error_type"),
                    ),
                ),
                graph("Running", total("trunkline_admission_running", _AGENT, by=agent)),
                graph("Waiting", total("trunkline_admission_waiting", _AGENT, by=agent)),
                graph(
                    "Refused",
                    rate("trunkline_admission_refused_total", _AGENT, by=(agent, "error_type")),
                ),
            ],
            "Tools": [
                graph(
                    "Calls",
                    rate(f"{tool}_count", by=("trunkline_tool_server", "gen_ai_tool_name")),
                ),
                graph(
                    "Duration (p95)",
                    quantile(0.95, tool, by=("trunkline_tool_server", "gen_ai_tool_name")),
                    units.Seconds,
                ),
                graph(
                    "Failed calls",
                    rate(
                        f"{tool}_count",
                        'error_type!=""',
                        by=("trunkline_tool_server", "error_type"),
                    ),
                ),
                graph(
                    "Sessions that ended",
                    increase(
                        "mcp_client_session_duration_seconds_count",
                        by=("trunkline_tool_server", "error_type"),
                        window="5m",
                    ),
                    description="In five minutes.",
                ),
            ],
            "Webhooks": [
                graph("Pending", total("trunkline_webhooks_pending")),
                graph(
                    "Attempts",
                    rate("trunkline_webhook_attempt_duration_seconds_count", by="error_type"),
                    description="Those without an error type were delivered.",
                ),
                graph(
                    "Duration",
                    quantiles("trunkline_webhook_attempt_duration_seconds"),
                    units.Seconds,
                ),
            ],
        },
    )


def models_and_cost() -> dashboard.Dashboard:
    """Build the dashboard of models: calls, tokens and cost."""
    model = "gen_ai_request_model"
    calls = "gen_ai_client_inference_duration_seconds"
    first = "gen_ai_client_inference_time_to_first_chunk_seconds"
    tokens_read = "gen_ai_client_inference_usage_input_tokens_total"
    tokens_written = "gen_ai_client_inference_usage_output_tokens_total"
    written_by_call = "gen_ai_client_inference_operation_output_tokens"
    chosen = f'{model}=~"$model"'
    cost = "trunkline_model_cost_usd_total"
    board = _new_dashboard("models", "Trunkline: models and cost", "Calls, tokens and cost.")
    return _add(
        board.with_variable(_choice("model", "Model", f"{calls}_count", model)),
        {
            "In this time": [
                number("Calls", or_zero(increase(f"{calls}_count", chosen))),
                number(
                    "Failed calls",
                    # A cancel is no failure.
                    or_zero(increase(f"{calls}_count", chosen, 'error_type!~"|cancelled"')),
                ),
                number("Tokens read", or_zero(increase(tokens_read, chosen))),
                number("Tokens written", or_zero(increase(tokens_written, chosen))),
                number("Cost, all models", or_zero(increase(cost)), units.Dollars, 2),
            ],
            "Calls": [
                graph("Calls", rate(f"{calls}_count", chosen, by=model), units.RequestsPerSecond),
                graph(
                    "Duration",
                    [quantile(each, calls, chosen, by=model) for each in (0.5, 0.95)],
                    units.Seconds,
                ),
                graph(
                    "Time to the first piece",
                    [quantile(each, first, chosen, by=model) for each in (0.5, 0.95)],
                    units.Seconds,
                ),
                graph(
                    "Failed calls",
                    rate(f"{calls}_count", chosen, 'error_type!=""', by=(model, "error_type")),
                    units.RequestsPerSecond,
                ),
                graph("Tokens read a second", rate(tokens_read, chosen, by=model)),
                graph("Tokens written a second", rate(tokens_written, chosen, by=model)),
                graph(
                    "Tokens that a call writes (p95)",
                    quantile(0.95, written_by_call, chosen, by=model),
                ),
            ],
            "Cost": [
                graph(
                    "Cost of an hour",
                    increase(cost, by="trunkline_model", window="1h"),
                    units.Dollars,
                    "Of models that have a price in the settings.",
                    is_stacked=True,
                ),
            ],
        },
    )


def messages_and_workflows() -> dashboard.Dashboard:
    """Build the dashboard of messages between agents, and of workflows."""
    recipient = "messaging_destination_name"
    deliveries = "trunkline_message_deliveries_total"
    node = "trunkline_workflow_node_duration_seconds"
    node_labels = ("trunkline_workflow_name", "trunkline_workflow_node")
    chosen = 'trunkline_workflow_name=~"$workflow"'
    board = _new_dashboard(
        "messages", "Trunkline: messages and workflows", "Deliveries, and nodes of workflows."
    )
    return _add(
        board.with_variable(
            _choice("workflow", "Workflow", f"{node}_count", "trunkline_workflow_name")
        ),
        {
            "Messages": [
                graph(
                    "Sent",
                    rate("messaging_client_sent_messages_total", by="trunkline_message_type"),
                ),
                graph(
                    "Deliveries",
                    rate(deliveries, by="trunkline_delivery_state"),
                    is_stacked=True,
                ),
                graph(
                    "Handled", rate(deliveries, 'trunkline_delivery_state="handled"', by=recipient)
                ),
                graph(
                    "Dead letters",
                    increase(
                        deliveries, 'trunkline_delivery_state="dead"', by=recipient, window="5m"
                    ),
                    description="In five minutes.",
                ),
                graph("Retries", rate("trunkline_message_retries_total", by=recipient)),
                graph(
                    "Queue",
                    [
                        _named("waiting", total("trunkline_messages_waiting")),
                        _named("running", total("trunkline_messages_running")),
                    ],
                ),
            ],
            "Workflows": [
                graph("Runs of nodes", rate(f"{node}_count", chosen, by=node_labels)),
                graph(
                    "Duration (p95)",
                    quantile(0.95, node, chosen, by=node_labels),
                    units.Seconds,
                ),
                graph(
                    "Failed nodes",
                    rate(
                        f"{node}_count", chosen, 'error_type!=""', by=(*node_labels, "error_type")
                    ),
                ),
            ],
        },
    )


def _named(legend: str, query: Query) -> Query:
    return query[0], legend


def main() -> None:
    """Write all dashboards into the folder that the first argument names, by default `FOLDER`."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    boards = (mesh_overview, agents_and_tasks, models_and_cost, messages_and_workflows)
    for make in boards:
        text = JSONEncoder(sort_keys=True, indent=2).encode(make().build())
        file = folder / f"{make.__name__.replace('_', '-')}.json"
        file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
