"""Echo: the mesh's test instrument, an agent that does on request what agents do by accident."""
