"""Settings of one remote agent."""

import logging
import os
from dataclasses import dataclass, fields
from typing import Final, Self

from trunkline.core.network import is_this_machine
from trunkline.core.settings import RemoteAgentSettings, RemoteEndpointSettings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError
from trunkline.mesh.client.breaker import DEFAULT_SETTINGS, BreakerSettings

logger = logging.getLogger(__name__)

# Of clients that act for a person or a program, which decides about each call.
NO_BREAKER: Final = BreakerSettings(failures=1_000_000_000)
"""A circuit breaker that never opens."""
STREAM_IDLE_S: Final = 60.0
"""A stream without events and heartbeats for so long is taken as broken."""
MAX_STREAMED_BYTES: Final = 64 * 1024 * 1024
"""Limit of one event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteSettings(RemoteEndpointSettings):
    """Settings of one remote agent; the headers include its credentials."""

    name: str = ""
    """The agent's name on the mesh; if empty, derived from the card's name."""
    content_bytes: int = 16 * 1024 * 1024
    """Limit of the content that the agent may send in one turn."""
    breaker: BreakerSettings = DEFAULT_SETTINGS
    """Settings of the circuit breaker for new messages."""
    files: SmallFiles | None = None
    """The small files with the card's pin, or None if the card is not pinned."""

    @classmethod
    def from_settings(
        cls,
        name: str,
        settings: RemoteAgentSettings,
        breaker: BreakerSettings = DEFAULT_SETTINGS,
        *,
        files: SmallFiles | None = None,
    ) -> Self:
        """Build the settings from a process's settings, with credentials from the environment.

        The pin of the agent's card is in `files`.

        Raises:
            ConfigurationError: A variable that holds credentials isn't set.
        """
        where = f"remote.{name}" if name else "join"
        headers = dict(settings.headers)
        if settings.token_env:
            headers["authorization"] = f"Bearer {_read_secret(settings.token_env, where)}"
        if settings.api_key_env:
            headers[settings.api_key_header.lower()] = _read_secret(settings.api_key_env, where)
        is_secret = bool(settings.token_env or settings.api_key_env)
        if is_secret and settings.url.startswith("http:") and not is_this_machine(settings.url):
            logger.warning("remote.credentials_not_encrypted", extra={"where": where})
        names = [field.name for field in fields(RemoteEndpointSettings)]
        shared = {name: getattr(settings, name) for name in names}
        others = {"headers": headers, "name": name, "breaker": breaker, "files": files}
        return cls(**{**shared, **others})


def _read_secret(variable: str, where: str) -> str:
    secret = os.environ.get(variable, "").strip()
    if not secret:
        problem = f"the variable {variable}, which holds its credentials, is not set"
        raise ConfigurationError(where, problem)
    check_header_value(secret, where, f"the value of {variable}")
    return secret


def check_header_value(value: str, where: str, name: str) -> None:
    """Raise ConfigurationError if a value can't be sent in a header."""
    if not value.isascii() or not value.isprintable():
        raise ConfigurationError(where, f"{name} can't be sent in a header")
