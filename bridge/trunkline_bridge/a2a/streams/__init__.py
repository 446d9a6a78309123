"""Streams of wire events: resuming, rendering, and server-sent events."""
