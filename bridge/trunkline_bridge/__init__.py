"""The bridge between a mesh and the public A2A wire."""

from trunkline_bridge.app import Bridge
from trunkline_bridge.settings import BridgeSettings

__all__ = ["Bridge", "BridgeSettings"]
