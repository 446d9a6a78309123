"""The operations of A2A, and what they need of a request."""
