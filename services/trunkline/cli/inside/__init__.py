"""Commands that look at a mesh from inside, over gRPC: who is on it, what it does and did."""
