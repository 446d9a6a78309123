"""Callers: who sends a request, what it may do, and how much."""
