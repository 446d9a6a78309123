"""Webhooks: registration, sending in order, signatures.

When a failed one is sent again is decided by its host: see `trunkline.tasks.outbox`.
"""
