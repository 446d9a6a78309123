"""Messages between agents for callers outside: over HTTP, server-sent events and WebSockets."""
