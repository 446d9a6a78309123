"""The agents that ship with Trunkline, one folder each, and what their MCP servers share.

They stand on the public API alone, as the agents of any other package do: each folder joins the
mesh by its entry point in the group `trunkline.agents`, so deleting a folder and its entry points
deletes an agent.
"""
