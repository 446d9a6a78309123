"""Who callers are: API keys and tokens."""

from trunkline_bridge.inbound.access.gate import open_access

__all__ = ["open_access"]
