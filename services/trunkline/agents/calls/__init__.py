"""Calls of one task to other agents and to tools: journaled, followed, canceled with the task."""
