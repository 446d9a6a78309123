"""The wire of A2A v1.0."""
