"""The methods that a trunk carries.

A trunk carries the calls between processes that are many and small. All other calls are plain gRPC:
streams that stay open without end, and services that move much data or are called rarely.
"""

from collections.abc import Mapping
from typing import Final

from trunkline.v1 import message_service_pb2, task_service_pb2

BATCH_FIELDS: Final[Mapping[str, int]] = {
    "trunkline.v1.MessageService/StreamMessage": (
        message_service_pb2.StreamMessageResponse.BATCHES_FIELD_NUMBER
    ),
    "trunkline.v1.MessageService/DeliverMessages": (
        message_service_pb2.DeliverMessagesResponse.OUTCOMES_FIELD_NUMBER
    ),
    "trunkline.v1.TaskService/WatchTask": task_service_pb2.WatchTaskResponse.BATCHES_FIELD_NUMBER,
}
"""The streaming methods that a trunk carries: the number of the responses' field for batches.

After its first response such a stream consists of batches only, which a trunk carries serialized.
"""

LONG_POLLS: Final = frozenset({"trunkline.v1.WebhookService/ClaimWebhooks"})
"""The unary methods whose answer may take half a minute, for which nobody waits."""

CONNECT_METHOD: Final = "trunkline.v1.TrunkService/Connect"
"""The method whose stream is a trunk."""
_SERVICES: Final = frozenset(
    {
        "trunkline.v1.MessageService",
        "trunkline.v1.TaskService",
        "trunkline.v1.WebhookService",
    }
)


def is_carried(method: str, *, is_stream: bool) -> bool:
    """Return whether trunks carry a method without a stream of requests.

    `method` is `SERVICE/METHOD`; `is_stream` means that its responses are a stream.
    """
    return method in BATCH_FIELDS if is_stream else method.partition("/")[0] in _SERVICES
