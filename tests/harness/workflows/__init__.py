"""Workflow files for tests."""
