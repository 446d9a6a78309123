"""Agents behind HTTP or a WebSocket that get messages as JSON, by their settings alone."""
