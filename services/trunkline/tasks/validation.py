"""What messages, and ids that clients choose, must be before anything is made of them."""

from typing import Final

from trunkline.errors import ContentTypeNotSupportedError, InvalidArgumentError
from trunkline.tasks.approvals import is_answer
from trunkline.v1 import agent_card_pb2, message_pb2

_ALIAS_BYTES: Final = 1024


def check_alias(alias: str, task_id: str) -> None:
    """Refuse an id of a client's that can't stand for a task. InvalidArgumentError."""
    if not alias:
        raise InvalidArgumentError("alias", "is missing")
    if len(alias.encode()) > _ALIAS_BYTES:
        raise InvalidArgumentError("alias", f"is longer than {_ALIAS_BYTES} bytes")
    if not task_id:
        raise InvalidArgumentError("task_id", "is missing")


def check_message(card: agent_card_pb2.AgentCard, message: message_pb2.Message) -> None:
    """Refuse a message the agent can't take.

    Raises:
        InvalidArgumentError: an id, the role or the parts are missing.
        ContentTypeNotSupportedError: a part's media type isn't among the agent's input modes, and
            it is no answer to an approval.
    """
    if not message.message_id:
        raise InvalidArgumentError("message.messageId", "is missing")
    if message.role != message_pb2.ROLE_USER:
        raise InvalidArgumentError("message.role", "must be ROLE_USER")
    if not message.parts:
        raise InvalidArgumentError("message.parts", "must have at least one part")
    for index, part in enumerate(message.parts):
        if part.WhichOneof("content") is None:
            raise InvalidArgumentError(
                f"message.parts[{index}]", "has no content: give text, raw, url or data"
            )
        if part.media_type and not is_answer(part) and not _accepts(card, part.media_type):
            modes = ", ".join(card.default_input_modes)
            raise ContentTypeNotSupportedError(part.media_type, modes)


def _accepts(card: agent_card_pb2.AgentCard, media_type: str) -> bool:
    """A card without input modes takes everything; `image/*` and `*/*` are ranges (RFC 9110)."""
    modes = {mode.lower() for mode in card.default_input_modes}
    plain = media_type.partition(";")[0].strip().lower()
    return not modes or bool({plain, plain.partition("/")[0] + "/*", "*/*"} & modes)
