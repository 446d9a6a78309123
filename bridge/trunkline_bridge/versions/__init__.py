"""The JSON and protobuf of each A2A version, and the handlers that differ by version."""
