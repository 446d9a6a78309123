"""Workflows: their files, validation, drawings, graphs, versions and agents."""
