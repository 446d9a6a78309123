"""Nodes with addresses of their own, and links between them that fail as told."""
