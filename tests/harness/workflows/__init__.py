"""Workflow files, workflows and their hosts, for tests."""
