"""Verifies the card of a remote agent before it is used: form, origin, signature and pin."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from trunkline.a2a_client.agent_card import RemoteCard, parse_remote_card
from trunkline.a2a_client.card_pins import CardPin, CardPinFile
from trunkline.a2a_client.interfaces import InterfaceSelector
from trunkline.a2a_client.lenient_reader import LeftOutLog
from trunkline.a2a_client.settings import RemoteSettings
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import KEYS_PATH
from trunkline.core.private_files import read_private_file
from trunkline.errors import ConfigurationError, PeerProtocolError, TrunklineError

if TYPE_CHECKING:
    from trunkline.a2a_wire.card_signatures import TrustedKey

logger = logging.getLogger(__name__)

_MAX_INTERFACES: Final = 64
_MAX_SKILLS: Final = 500

Fetch = Callable[[str], Awaitable[bytes]]
"""Returns the document at a URL of the agent's own origin."""


class CardVerifier:
    """Verifies the cards of one remote agent."""

    def __init__(
        self, settings: RemoteSettings, fetch: Fetch, left_out: LeftOutLog | None = None
    ) -> None:
        self._left_out = left_out
        self._settings = settings
        self._fetch = fetch
        self._pins = None if settings.files is None else CardPinFile(settings.files, settings.url)

    async def verify(self, body: bytes, selector: InterfaceSelector, *, peer: str) -> RemoteCard:
        """Return the card if nothing speaks against it.

        Raises:
            PeerProtocolError: it is malformed, leads to other hosts, lacks a valid signature, or
                differs from its pin.
            ConfigurationError: the pin or the keys can't be read or written, or the settings
                exclude all interfaces.
        """
        try:
            remote = parse_remote_card(body, selector, self._left_out)
            value = _check_form(body, remote)
            pin = None if self._pins is None else await self._pins.read()
            signed_by, keys = await self._check_signature(body, value, selector.card_url, pin)
        except ValueError as error:
            raise PeerProtocolError(peer, str(error)) from None
        if self._pins is not None:
            current = CardPin.from_card(
                self._settings.url, value, remote.card, signed_by=signed_by, keys=keys
            )
            await self._check_pin(self._pins, pin, current, peer)
        return remote

    async def _check_pin(
        self, pins: CardPinFile, pin: CardPin | None, current: CardPin, peer: str
    ) -> None:
        drift = pin.describe_drift(current) if pin is not None else ""
        if drift and self._settings.pin == "refuse":
            problem = f"its card has changed ({drift}); to accept it, delete {pins.place}"
            raise PeerProtocolError(peer, problem)
        if drift:
            logger.warning(
                "remote.card_changed", extra={"peer": peer, "changes": drift, "pin": pins.place}
            )
        if pin != current:
            await pins.write(current)

    async def _check_signature(
        self, body: bytes, value: Json, card_url: str, pin: CardPin | None
    ) -> tuple[str, Sequence[Json]]:
        """Return the id of the key that signed the card, and the keys that may sign the next one.

        Raises:
            ValueError: a signature is required, and none is valid.
        """
        settings = self._settings
        known = pin.keys if pin is not None else ()
        if not (settings.card_keys or known or value.get("signatures")):
            return "", ()
        # cryptography is slow to load.
        from trunkline.a2a_wire.card_signatures import TrustedKey

        if settings.card_keys is not None:
            return _find_signer(body, await asyncio.to_thread(_load_keys, settings.card_keys)), ()
        if known:
            pinned = [TrustedKey(key.get("kid"), key) for key in known]
            try:
                return _find_signer(body, pinned), known
            except ValueError:
                # The agent may have a new key, which its own key set then lists.
                pass
        try:
            keys = await self._fetch_keys(card_url)
            signer = _find_signer(body, [TrustedKey(key.get("kid"), key) for key in keys])
        except ValueError as error:
            if known:
                raise ValueError(f"its card was signed before, and now {error}") from None
            return "", ()
        return signer, keys

    async def _fetch_keys(self, card_url: str) -> Sequence[Json]:
        """Return the key set at the card's origin. ValueError: there is none."""
        from trunkline.a2a_wire.key_sets import parse_key_set

        parts = urlsplit(card_url)
        url = urlunsplit((parts.scheme, parts.netloc, KEYS_PATH, "", ""))
        try:
            return [dict(key) for key in parse_key_set(await self._fetch(url))]
        except TrunklineError:
            raise ValueError("its origin has no key set") from None


def _check_form(body: bytes, remote: RemoteCard) -> Json:
    """Return the JSON of a parsed card. ValueError: it is beyond our limits."""
    value: Json = json.loads(body)
    card = remote.card
    if len(card.supported_interfaces) > _MAX_INTERFACES or len(card.skills) > _MAX_SKILLS:
        raise ValueError(
            f"its card has more than {_MAX_INTERFACES} interfaces or {_MAX_SKILLS} skills"
        )
    return value


def _load_keys(path: Path) -> "Sequence[TrustedKey]":
    """Return the keys that may sign the card. ConfigurationError: they can't be read."""
    from trunkline.a2a_wire.card_signatures import parse_trusted_keys

    try:
        return parse_trusted_keys(read_private_file(path, is_secret=False))
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error
    except ValueError as error:
        raise ConfigurationError(str(path), str(error)) from error


def _find_signer(body: bytes, keys: "Sequence[TrustedKey]") -> str:
    """Return the id of the trusted key that signed a card. ValueError: none did."""
    from trunkline.a2a_wire.card_signatures import InvalidSignatureError, verify_card

    try:
        return verify_card(body, keys).key_id
    except InvalidSignatureError as error:
        raise ValueError(f"its card has no valid signature: {error}") from None
