"""The safe_fetch package."""
