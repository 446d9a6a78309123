"""The outbox: configurations, claims and delivery state of the webhooks of tasks."""

from trunkline.tasks.outbox.configs import PushConfigs
from trunkline.tasks.outbox.delivery import RetryPolicy
from trunkline.tasks.outbox.outbox import Outbox

__all__ = ["Outbox", "PushConfigs", "RetryPolicy"]
