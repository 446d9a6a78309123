"""The A2A client, and remote agents on the mesh that it calls."""
