"""Names that A2A clients and servers share: versions, headers, well-known paths, our extension.

Over gRPC the headers are metadata.
"""

from typing import Final

RESUME_EXTENSION = "https://trunkline.dev/a2a/extensions/resume/v1"
EVENT_ID_KEY = f"{RESUME_EXTENSION}/eventId"
"""Key of the event id in the metadata of an event over gRPC."""
PLAIN_EXTENSION = "https://trunkline.dev/a2a/extensions/plain/v1"
"""Shows tasks in the plain view: their statuses, and one answer artifact for each turn."""
OUR_EXTENSIONS: Final = (RESUME_EXTENSION, PLAIN_EXTENSION)
LAST_EVENT_ID_KEY = f"{RESUME_EXTENSION}/lastEventId"
"""Key in the metadata of a request for the value of the header Last-Event-ID."""

VERSION_HEADER: Final = "a2a-version"
EXTENSIONS_HEADER: Final = "a2a-extensions"
LEGACY_EXTENSIONS_HEADER: Final = "x-a2a-extensions"
"""The name in v0.3."""
LAST_EVENT_ID_HEADER: Final = "last-event-id"
TIMEOUT_HEADER: Final = "Trunkline-Timeout"
"""The deadline of a task, in seconds from now."""
TREE_HEADER: Final = "Trunkline-Tree"
"""The chain of agents above a new task and what it may use: a TreePosition in base64url. It only
restricts a task, so any caller may send it."""
AGENT_KEY: Final = "trunkline-agent"
"""Metadata of a gRPC call that names the agent; v0.3 has no field for it."""
NOTIFICATION_TOKEN_HEADER: Final = "x-a2a-notification-token"  # noqa: S105  its name

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
