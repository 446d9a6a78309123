"""What cards and calls have in common: the extension, and where cards are."""

from typing import Final

RESUME_EXTENSION = "https://trunkline.dev/a2a/extensions/resume/v1"
EVENT_ID_KEY = f"{RESUME_EXTENSION}/eventId"
"""Under which the metadata of an event over gRPC has its id."""
LAST_EVENT_ID_KEY = f"{RESUME_EXTENSION}/lastEventId"
"""Under which the metadata of a request has what the header Last-Event-ID says."""

CARD_PATH = "/.well-known/agent-card.json"
LEGACY_CARD_PATH = "/.well-known/agent.json"
"""Where v0.1 and v0.2 look for it."""
LEGACY_EXTENDED_PATH = "/agent/authenticatedExtendedCard"
"""Where v0.2 asks for the extended card, by GET."""
KEYS_PATH = "/.well-known/jwks.json"
"""Where the public half of the key is that signs cards."""


V1_0: Final = "1.0"
V0_3: Final = "0.3"
"""And v0.2, which has the same wire."""
V0_1: Final = "0.1"
"""The original wire: JSON-RPC alone."""
