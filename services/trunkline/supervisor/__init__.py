"""The supervisor: an agent whose tools are other agents."""

from trunkline.supervisor.agent import Supervisor

__all__ = ["Supervisor"]
