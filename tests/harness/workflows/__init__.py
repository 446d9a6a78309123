"""Workflows for tests, and a mesh that runs them."""
