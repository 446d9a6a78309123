"""Requests that no good client sends, and probes that check the answers."""
