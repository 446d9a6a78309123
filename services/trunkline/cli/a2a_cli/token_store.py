"""Tokens of `auth login`, in a file that only its owner may read."""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline.cli.a2a_cli.configuration import FOLDER
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.core.private_files import read_private_file, write_private_file
from trunkline.errors import ConfigurationError

# A token that expires sooner is taken as expired.
_MARGIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class StoredToken:
    """An access token, and what renews it."""

    scheme: str
    """The security scheme of the card that the token is for."""
    token_url: str
    client_id: str
    access_token: str = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_at: float = 0.0
    """Seconds since 1970. A token with 0 does not expire."""

    @property
    def is_expired(self) -> bool:
        """It has expired or is about to."""
        return bool(self.expires_at) and datetime.now(UTC).timestamp() > self.expires_at - _MARGIN_S


class TokenStore:
    """The tokens by the address of the agent's card."""

    def __init__(self, home: Path) -> None:
        self.path = home / FOLDER / "credentials.json"

    def find(self, card: str) -> StoredToken | None:
        """Return the token for a card. CommandError: the file can't be used."""
        entry = self._read().get(card)
        try:
            return StoredToken(**entry) if isinstance(entry, dict) else None
        except TypeError:
            return None

    def save(self, card: str, token: StoredToken) -> None:
        """Store the token for a card. CommandError: the file can't be used."""
        content = {**self._read(), card: asdict(token)}
        try:
            write_private_file(self.path, json.dumps(content, indent=2).encode())
        except ConfigurationError as error:
            raise CommandError(LocalCode.INTERNAL, str(error)) from error

    def _read(self) -> Json:
        try:
            content = json.loads(read_private_file(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, ConfigurationError) as error:
            problem = f"{self.path} can't be used: {error}"
            raise CommandError(
                LocalCode.INTERNAL, problem, "make it private, or delete it and log in again"
            ) from error
        return content if isinstance(content, dict) else {}
