"""Arguments and options that several commands of the standard have."""

from typing import Annotated

from trunkline.cli.options import argument, flag, option

TaskArgument = Annotated[str, argument("TASK", "The id of the task.")]
ConfigArgument = Annotated[str, argument("CONFIG", "The id of the config.")]
HistoryOption = Annotated[int | None, option("N", "With the last N messages.", "--history", min=0)]
StreamOption = Annotated[
    bool, flag("Print events or tasks as they come; as JSON, one on each line.", "--stream")
]
