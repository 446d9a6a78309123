"""A2A v0.3, whose wire v0.2 shares."""
