"""What cards and calls have in common: the extension, and where cards are."""

RESUME_EXTENSION = "https://trunkline.dev/a2a/extensions/resume/v1"

CARD_PATH = "/.well-known/agent-card.json"
LEGACY_CARD_PATH = "/.well-known/agent.json"
"""Where v0.1 and v0.2 look for it."""
LEGACY_EXTENDED_PATH = "/agent/authenticatedExtendedCard"
"""Where v0.2 asks for the extended card, by GET."""
KEYS_PATH = "/.well-known/jwks.json"
"""Where the public half of the key is that signs cards."""
