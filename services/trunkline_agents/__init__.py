"""The agents that ship with Trunkline, one folder each, and what their MCP servers share.

Each folder joins the mesh by its entry point in the group `trunkline.agents`, as the agent of any
other package does. Deleting a folder and its entry points deletes an agent.
"""
