"""The cost and the depth of operations, as the documentation has them."""

from pathlib import Path

from graphql import OperationDefinitionNode, parse

from trunkline.core.settings import GraphQLSettings
from trunkline_bridge.api.graphql.limits import Measure, measure
from trunkline_bridge.api.graphql.schema import MeshSchema

PAGE = Path(__file__).parents[5] / "docs" / "graphql.md"
SCHEMA = MeshSchema(GraphQLSettings()).declared


def size(text: str, page_limit: int = 100, **variables: object) -> Measure:
    document = parse(text)
    operation = document.definitions[0]
    assert isinstance(operation, OperationDefinitionNode)
    return measure(SCHEMA, document, operation, variables, page_limit=page_limit)


def test_the_example_of_the_documentation_costs_what_it_says() -> None:
    query = "{ rooms(first: 10) { nodes { name history(first: 5) { nodes { text } } } } }"
    assert f"`{query}` costs 241:" in PAGE.read_text(encoding="utf-8")
    assert size(query)[:2] == (5, 241)


def test_pages_count_by_literals_variables_and_defaults() -> None:
    query = "query($n: Int! = 7) { rooms(first: $n) { endCursor } }"
    assert size(query).cost == 11 + 7
    assert size(query, n=30).cost == 11 + 30
    # What is out of range is refused later, and counts as the limit until then.
    assert size(query, n=10**9).cost == 11 + 100
    assert size(query, n="x").cost == size("{ rooms { endCursor } }").cost == 11 + 20
    assert size("{ rooms(first: -5) { endCursor } }").cost == 11 + 1
    assert size("{ none { a b } }").cost == 13


def test_introspection_is_not_deep_and_has_aliases() -> None:
    found = size("{ __schema { a: types { name } b: types { fields { name } } } }")
    assert (found.depth, found.aliases) == (1, 2)
