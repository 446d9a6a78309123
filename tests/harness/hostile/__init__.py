"""Malformed requests, and probes that check the answers."""
