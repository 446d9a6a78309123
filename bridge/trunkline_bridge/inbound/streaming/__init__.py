"""Streams to clients: written, kept open, ended, and gone on with behind an event."""
