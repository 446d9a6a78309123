"""The schema of GraphQL is the one that is committed."""

from pathlib import Path

import trunkline_bridge.api.graphql
from trunkline.settings import GraphQLSettings
from trunkline_bridge.api.graphql.schema import build_schema

SNAPSHOT = Path(trunkline_bridge.api.graphql.__file__).with_name("schema.graphql")


def test_the_committed_schema_is_the_one_that_is_served() -> None:
    # `python -m trunkline_bridge.api.graphql.schema` prints it.
    assert build_schema(GraphQLSettings()).as_str() == SNAPSHOT.read_text(encoding="utf-8").rstrip()
