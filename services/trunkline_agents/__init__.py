"""The trunkline_agents package."""
