"""The supervisor: an agent whose tools are other agents."""

from trunkline.calls.child import ChildLimits
from trunkline.supervisor.agent import Supervisor
from trunkline.supervisor.planner import Planner

__all__ = ["ChildLimits", "Planner", "Supervisor"]
