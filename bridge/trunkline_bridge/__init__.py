"""The bridge between a mesh and the public A2A protocol.

`app` serves a mesh to A2A clients; `client` calls remote A2A agents. This package imports neither,
so that a command that needs only the client does not load the server.
"""
