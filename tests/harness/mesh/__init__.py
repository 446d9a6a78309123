"""The mesh package."""
