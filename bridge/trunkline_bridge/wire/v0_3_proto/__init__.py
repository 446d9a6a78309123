"""A2A v0.3's protobuf, which gRPC has as it is and HTTP+JSON as ProtoJSON, and the core's data."""
