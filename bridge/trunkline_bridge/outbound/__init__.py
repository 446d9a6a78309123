"""The bridge outwards: remote A2A agents become agents of this mesh."""

from trunkline_bridge.outbound.agent import RemoteAgent, open_remote, remote_agent
from trunkline_bridge.outbound.settings import RemoteSettings

__all__ = ["RemoteAgent", "RemoteSettings", "open_remote", "remote_agent"]
