"""The wire of A2A v0.3."""
