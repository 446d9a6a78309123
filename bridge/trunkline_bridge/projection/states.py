"""Which states end what."""

from trunkline.v1 import task_pb2

ENDED = frozenset(
    {
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_REJECTED,
    }
)
"""Nothing follows."""
TURN_ENDS = ENDED | {task_pb2.TASK_STATE_INPUT_REQUIRED}
"""The client's next message has to come before anything follows. A task that waits for credentials
may get them from somebody else and go on by itself, so that ends no turn."""
V0_1_TURN_ENDS = TURN_ENDS | {task_pb2.TASK_STATE_AUTH_REQUIRED}
"""In A2A v0.1, which says `input-required` of a task that waits for credentials, too."""
