"""Accepts, runs, watches and cancels tasks, whose events are in journals."""

from trunkline.tasks.agent import Agent
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost

__all__ = ["Agent", "TaskContext", "TaskHost"]
