"""The agents' cards: what their endpoint offers, in every version of A2A at once, and signed."""

from trunkline_bridge.inbound.cards.names import (
    CARD_PATH,
    LEGACY_CARD_PATH,
    LEGACY_EXTENDED_PATH,
    RESUME_EXTENSION,
)

__all__ = [
    "CARD_PATH",
    "LEGACY_CARD_PATH",
    "LEGACY_EXTENDED_PATH",
    "RESUME_EXTENSION",
]
