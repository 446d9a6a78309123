"""The turn of a supervisor, as all nodes of its graph share it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.agents.calls.agent_call import AgentCalls
from trunkline.mesh.client import Directory
from trunkline.supervisor.planning import Planner
from trunkline.supervisor.roster import Roster
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter

if TYPE_CHECKING:
    from trunkline.supervisor.planner_memory import PlannerMemory


@dataclass(frozen=True, slots=True)
class SupervisorTurn:
    """The context of one turn, which all nodes of the graph share."""

    task: TurnRuntime
    directory: Directory
    roster: Roster
    plan: PlanWriter
    calls: AgentCalls
    planner: Planner
    memory: "PlannerMemory | None" = None
    """The conversation, for a planner that reads it."""
