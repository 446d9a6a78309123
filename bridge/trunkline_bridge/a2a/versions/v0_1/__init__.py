"""A2A v0.1, the original protocol with the methods `tasks/*`, over JSON-RPC only."""
