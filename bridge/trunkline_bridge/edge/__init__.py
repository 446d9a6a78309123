"""The HTTP server, limits, authentication, agent cards, and request spans."""
