"""Workflows and their runs for callers outside."""
