"""HTTP: the server, its limits, requests and responses, and streams of events."""
