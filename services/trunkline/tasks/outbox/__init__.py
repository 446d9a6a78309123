"""The outbox: which webhooks of tasks have something to send, and how far each has come."""

from trunkline.tasks.outbox.configs import PushConfigs
from trunkline.tasks.outbox.delivery import RetryPolicy
from trunkline.tasks.outbox.outbox import Outbox

__all__ = ["Outbox", "PushConfigs", "RetryPolicy"]
