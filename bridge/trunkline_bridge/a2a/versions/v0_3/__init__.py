"""A2A v0.3. v0.2 has the same messages."""
