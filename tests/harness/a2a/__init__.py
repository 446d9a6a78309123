"""A2A clients that talk to the bridge, and meshes that serve it."""
