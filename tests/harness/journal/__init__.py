"""The journal package."""
