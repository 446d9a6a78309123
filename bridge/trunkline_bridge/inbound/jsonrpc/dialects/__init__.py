"""JSON-RPC in each version of A2A: methods, shapes and errors over the same operations."""
