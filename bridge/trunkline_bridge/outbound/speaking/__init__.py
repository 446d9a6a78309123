"""How a remote agent is spoken to: A2A's bindings from the client's side, in the core model."""
