"""A host as its callers see it: its agents, its tasks, and their webhooks."""

from trunkline.client.hosts.client import HostClient

__all__ = ["HostClient"]
