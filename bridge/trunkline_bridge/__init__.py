"""The bridge between a mesh and the public A2A wire.

`app` serves a mesh to A2A clients; `client` calls remote A2A agents. This door imports neither, so
that a command that only asks a question doesn't load the server.
"""
