"""GraphQL for messages and workflows, over HTTP, server-sent events and WebSockets."""
