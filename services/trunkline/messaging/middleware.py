"""Middleware: what sees each message when it is sent, and when it is delivered."""

from typing import Protocol

from trunkline.messaging.store import Envelope


class Middleware(Protocol):
    """Checks or completes messages. Middlewares run in the order of the settings."""

    async def on_send(self, account: str, envelope: Envelope) -> None:
        """See a message before it is accepted, and before it is checked. It may be changed.

        Raises:
            TrunklineError: the message is refused.
        """

    async def on_receive(self, account: str, recipient: str, envelope: Envelope) -> None:
        """See a message before each attempt to deliver it. It may be changed.

        Raises:
            TrunklineError: the delivery fails; a RequestError makes it a dead letter.
        """
