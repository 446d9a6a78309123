"""Webhooks: what is registered for a task is posted to where it was asked for, in order."""
