"""A2A's bindings (JSON-RPC, HTTP+JSON, gRPC) over one table of operations, and file downloads."""
