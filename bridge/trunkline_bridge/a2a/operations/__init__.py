"""The operations of A2A, and the parameters that they need of a request."""
