"""What the server is started by, and the variables that hold its keys."""

COMMAND = "trunkline-mcp-research"
TAVILY_KEY = "TAVILY_API_KEY"
"""The variable that holds the server's key of Tavily."""
EMBEDDINGS_KEY = "TRUNKLINE_EMBEDDINGS_KEY"
"""The variable that holds the server's key of the model that makes vectors."""
