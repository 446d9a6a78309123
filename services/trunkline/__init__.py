"""A mesh for AI agents: the public door."""
