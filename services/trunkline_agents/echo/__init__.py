"""Echo: an agent for tests that repeats text and, on request, waits, asks, fails or rejects."""
