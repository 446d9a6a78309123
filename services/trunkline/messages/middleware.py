"""Middleware: checks and completes each message before it is accepted, and before each delivery.

The span of the message comes first, and on receive also the policy of the mesh. The middleware of
the settings follows in its order. On send, the checks of the message and the policy come after the
middleware, because it may complete the message. The record in the audit log comes last, because it
contains the outcome.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Protocol

from trunkline.errors import ConfigurationError, InternalError, TrunklineError
from trunkline.messages.store import DeliveryKey, Envelope
from trunkline.observe import telemetry

logger = logging.getLogger(__name__)


class Middleware(Protocol):
    """Checks or completes messages. Middlewares run in the order of the settings."""

    async def on_send(self, account: str, envelope: Envelope) -> None:
        """See, and perhaps change, a message before it is checked and accepted.

        Raises:
            TrunklineError: the message is refused.
        """

    async def on_receive(self, account: str, recipient: str, envelope: Envelope) -> None:
        """See, and perhaps change, a message before each attempt to deliver it.

        Raises:
            TrunklineError: the delivery fails; a RequestError makes it a dead letter.
        """


async def send(middleware: Sequence[Middleware], account: str, envelope: Envelope) -> None:
    """Show a message to each middleware before it is accepted; raise the errors of middleware.

    Raises:
        InternalError: one of them raised another exception.
    """
    for each in middleware:
        with _translating(each):
            await each.on_send(account, envelope)


async def receive(middleware: Sequence[Middleware], key: DeliveryKey, envelope: Envelope) -> None:
    """Show a message to each middleware before it is delivered; raises as `send`."""
    for each in middleware:
        with _translating(each):
            await each.on_receive(key.account, key.recipient, envelope)


@contextmanager
def _translating(middleware: Middleware) -> Iterator[None]:
    try:
        yield
    except TrunklineError:
        raise
    # The code of a package may raise anything.
    except Exception as error:
        name = type(middleware).__name__
        logger.exception("messages.middleware_failed", extra={"middleware": name})
        raise InternalError(telemetry.current_trace_id()) from error


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
