"""The math package."""
