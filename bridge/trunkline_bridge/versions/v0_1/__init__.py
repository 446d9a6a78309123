"""A2A v0.1, the original `tasks/*` wire: JSON-RPC only."""
