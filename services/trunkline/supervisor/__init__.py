"""The supervisor: an agent whose tools are other agents."""

from trunkline.agents.calls.agent_call import ChildLimits
from trunkline.supervisor.agent import Supervisor
from trunkline.supervisor.model_planner import ModelPlanner
from trunkline.supervisor.planning import Planner

__all__ = ["ChildLimits", "ModelPlanner", "Planner", "Supervisor"]
