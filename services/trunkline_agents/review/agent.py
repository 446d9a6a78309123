"""The workflows `review` and `direct-broadcast`, with the agents that work in them."""

from pathlib import Path
from typing import Final

from trunkline import WorkflowPlugin
from trunkline_agents.review.reviewer import reviewer
from trunkline_agents.review.writer import writer

_FOLDER: Final = Path(__file__).parent

review = WorkflowPlugin(file=_FOLDER / "review.yaml", agents=[writer, reviewer])
direct_broadcast = WorkflowPlugin(file=_FOLDER / "direct_broadcast.yaml", agents=[writer])
