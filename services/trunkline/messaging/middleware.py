"""Middleware: what sees each message when it is sent, and when it is delivered."""

from collections.abc import Sequence
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Protocol

from trunkline.errors import ConfigurationError
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


def load_middleware(names: Sequence[str]) -> list[Middleware]:
    """Create the middleware of the settings, each a class `module:name` without arguments.

    Raises:
        ConfigurationError: one can't be imported or created.
    """
    return [_load(name) for name in names]


def _load(name: str) -> Middleware:
    where = f"messaging.middleware {name!r}"
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigurationError(where, "give it as module:name")
    try:
        created = getattr(import_module(module), attribute)()
    # The code of a package may raise anything.
    except Exception as error:
        raise ConfigurationError(where, f"can't be created: {error}") from error
    for method in ("on_send", "on_receive"):
        if not iscoroutinefunction(getattr(created, method, None)):
            raise ConfigurationError(where, f"has no coroutine method `{method}`")
    middleware: Middleware = created
    return middleware
