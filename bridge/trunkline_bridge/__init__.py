"""The bridge between a mesh and the public A2A protocol: `app` serves a mesh to A2A clients."""
