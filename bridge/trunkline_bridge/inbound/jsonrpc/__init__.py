"""A2A over JSON-RPC, in each of its versions."""
