"""Messages between agents: their store, delivery, rooms and service."""
