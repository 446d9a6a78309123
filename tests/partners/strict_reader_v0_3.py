"""Reads agent cards as a2a-sdk 0.3 does, but refuses unknown members; prints them again.

Each line of stdin and stdout is a card.

It runs in the environment of scripts/partners.
"""

import json
import sys
from importlib import import_module
from typing import Any

# Every model inherits this when it is defined, so it comes before the import of the models.
base: Any = import_module("a2a._base")
base.A2ABaseModel.model_config["extra"] = "forbid"
types: Any = import_module("a2a.types")


def main() -> None:
    """Print each card as the SDK writes it."""
    for line in sys.stdin:
        card = types.AgentCard.model_validate(json.loads(line))
        sys.stdout.write(card.model_dump_json(by_alias=True, exclude_none=True) + "\n")


if __name__ == "__main__":
    main()
