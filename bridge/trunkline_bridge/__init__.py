"""The bridge between a mesh and the public A2A wire."""
