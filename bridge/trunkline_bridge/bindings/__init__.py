"""The bindings package."""
