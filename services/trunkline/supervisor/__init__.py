"""The supervisor: an agent whose tools are other agents."""

from trunkline.supervisor.agent import Supervisor
from trunkline.supervisor.child import ChildLimits

__all__ = ["ChildLimits", "Supervisor"]
