"""A2A as the mesh serves it: one module for each binding, and what they share."""
