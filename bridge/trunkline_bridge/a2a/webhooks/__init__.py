"""Webhooks: registration, delivery in order, signatures, retries."""
