"""The agents package."""
