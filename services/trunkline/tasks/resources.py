"""What the tasks of a host share, and what the tasks of one of its journals share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from trunkline.conversations.memory import AgentMemory
from trunkline.core.settings import Settings
from trunkline.journal.journal import Journal
from trunkline.tasks.admission import AdmissionControl
from trunkline.tasks.agent import Agent
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.emitter import FlushScheduler
from trunkline.tasks.files import JournalFiles, OpenRemote
from trunkline.tasks.loop_watch import LoopWatch
from trunkline.tasks.outbox import PushConfigs
from trunkline.v1 import snapshot_pb2, task_service_pb2

CancelChild: TypeAlias = Callable[[str, str], Awaitable[None]]
"""Cancels a task on any host, by its id and account."""
AnswerApproval: TypeAlias = Callable[
    [task_service_pb2.AnswerApprovalRequest], Awaitable[snapshot_pb2.ApprovalInfo]
]
"""Answers an approval of a task on any host."""


@dataclass(frozen=True, slots=True)
class OtherHosts:
    """How a host reaches the tasks and the files of other hosts. By default it reaches none."""

    cancel_child: CancelChild | None = None
    """Cancels a descendant of a task."""
    answer_parent: AnswerApproval | None = None
    """Answers an approval of a parent of a task."""
    open_content: OpenRemote | None = None
    """Opens content that is not stored in the folder of the journal."""


@dataclass(frozen=True, slots=True)
class HostResources:
    """What all journals of a host share."""

    agents: Mapping[str, Agent]
    """The agents that run here, by name."""
    settings: Settings
    admissions: AdmissionControl
    """The limits of the agents, which hold for all journals together."""
    watch: LoopWatch
    push_configs: PushConfigs
    budgets: Budgets | None
    """The budgets, if the settings have budgets."""
    others: OtherHosts
    """The ways to tasks on any host; a task on this host is reached directly."""


@dataclass(frozen=True, slots=True)
class JournalResources:
    """What the tasks of one journal share."""

    host: HostResources
    journal: Journal
    scheduler: FlushScheduler
    files: JournalFiles
    memory: AgentMemory
    """What the agents remember."""
