"""Meshes, hosts and the command line, in this process and in separate processes."""
