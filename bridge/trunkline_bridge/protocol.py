"""Names of A2A that clients and servers share: versions, well-known paths, our extension."""

from typing import Final

RESUME_EXTENSION = "https://trunkline.dev/a2a/extensions/resume/v1"
EVENT_ID_KEY = f"{RESUME_EXTENSION}/eventId"
"""Key of the event id in the metadata of an event over gRPC."""
LAST_EVENT_ID_KEY = f"{RESUME_EXTENSION}/lastEventId"
"""Key in the metadata of a request for the value of the header Last-Event-ID."""

CARD_PATH = "/.well-known/agent-card.json"
LEGACY_CARD_PATH = "/.well-known/agent.json"
"""Path of the card in v0.1 and v0.2."""
LEGACY_EXTENDED_PATH = "/agent/authenticatedExtendedCard"
"""Path of the extended card in v0.2, by GET."""
KEYS_PATH = "/.well-known/jwks.json"
"""Path of the public keys that verify cards, as a JWKS."""


V1_0: Final = "1.0"
V0_3: Final = "0.3"
"""Includes v0.2, which has the same messages."""
V0_1: Final = "0.1"
"""The original protocol, over JSON-RPC only."""
