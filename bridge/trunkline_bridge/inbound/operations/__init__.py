"""A2A's operations, the same for every version and binding."""

from trunkline_bridge.inbound.operations.operations import Operations

__all__ = ["Operations"]
