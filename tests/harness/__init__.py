"""Clients, agents, servers and meshes that several test folders share."""
