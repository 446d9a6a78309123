"""A2A's gRPC bindings, v1.0's and v0.3's, on one port."""
