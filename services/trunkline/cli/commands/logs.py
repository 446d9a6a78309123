"""The command that shows the log of a mesh."""

from typing import Annotated

from trunkline.cli.options import DataOption, JsonLinesOption, flag, load_command_settings, option
from trunkline.errors import ConfigurationError


def logs(
    data: DataOption = None,
    *,
    lines: Annotated[
        int, option("N", "The number of last lines.", "--lines", "-n", min=1, show_default=True)
    ] = 50,
    since: Annotated[str, option("TIME", "Not before: 90s, 30m or a date.")] = "",
    level: Annotated[
        str,
        option(
            "LEVEL",
            "At least this: debug, info, warning or error.",
            autocompletion=lambda: ["debug", "info", "warning", "error"],
            show_default=True,
        ),
    ] = "debug",
    task: Annotated[str, option("ID", "Only about this task.")] = "",
    trace: Annotated[str, option("ID", "Only of this trace.")] = "",
    follow: Annotated[bool, flag("Also show new lines, until Ctrl-C.", "--follow", "-f")] = False,
    json: JsonLinesOption = False,
) -> None:
    """Show the log of the mesh that has its data here. `log_level` says what it logs."""
    from trunkline.cli.log_file import LogQuery, follow_log, log_path, print_record
    from trunkline.cli.record_lines import report_unreadable
    from trunkline.observe.audit import read_records

    query = LogQuery.parse(since=since, level=level, task_id=task, trace_id=trace)
    path = log_path(load_command_settings({"data_dir": data}, uses={"data_dir"}))
    with report_unreadable(path):
        if follow:
            for followed in follow_log(path, query, lines=lines):
                if followed is not None:
                    print_record(followed, as_json=json)
        else:
            selected = [record for record in read_records(path) if query.selects(record)]
            if not selected and not path.exists():
                problem = "no mesh has logged here; start one with `trunkline up`, or give --data"
                raise ConfigurationError(str(path), problem)
            for record in selected[-lines:]:
                print_record(record, as_json=json)
