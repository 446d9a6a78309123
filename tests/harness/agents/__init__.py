"""Agents that tests put on a mesh."""
