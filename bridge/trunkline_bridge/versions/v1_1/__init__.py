"""The draft of A2A v1.1: generations and timelines beside v1.0."""
