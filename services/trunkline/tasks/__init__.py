"""Tasks: accepted, run, watched and canceled on a host's journal."""

from trunkline.tasks.agent import Agent
from trunkline.tasks.host import TaskHost
from trunkline.tasks.hosts import Hosts
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.turn.context import TaskContext

__all__ = ["Agent", "Hosts", "TaskContext", "TaskHost", "TaskSettings"]
