"""Load the packages of all extras: uvloop, asyncpg, obstore, models, GraphQL, vectors.

`scripts/try_wheel` runs it where only the wheel with all extras is installed. No client connects.
"""

import os
import sys
from importlib import import_module

from trunkline.agents.reasoning.models.providers import PROVIDERS
from trunkline.core.settings import GraphQLSettings, ModelSettings
from trunkline.embeddings import EmbeddingModel
from trunkline_bridge.api.graphql.schema import MeshSchema

KEY_VARIABLE = "TRIAL_KEY"


def main() -> int:
    """Return the exit code; an extra that does not load raises an error."""
    os.environ[KEY_VARIABLE] = "no key"
    for module in ("uvloop", "httptools", "asyncpg", "obstore"):
        import_module(module)
    for provider in PROVIDERS.values():
        provider.build_client("any", ModelSettings(api_key_env=KEY_VARIABLE))
    MeshSchema(GraphQLSettings())
    EmbeddingModel(name="openai:any", api_key="no key").open()
    EmbeddingModel(name="local:minilm").open().encode(["a text"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
