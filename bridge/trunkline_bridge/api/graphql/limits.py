"""Limits of operations: tokens, nesting, depth, aliases and cost.

They are checked before an operation is validated, because validating a hostile one is expensive. A
fragment is measured once, however often it is used, so that the time is linear in the text.

The cost of a field is 1, and 10 more if it calls the mesh: if it is a field of Query, Mutation or
Subscription, or a page. A page is a field with the argument `first`; the fields below it cost
`first` times as much.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    IntValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    VariableNode,
    get_named_type,
    value_from_ast_untyped,
)
from opentelemetry import trace

from trunkline.a2a_wire.errors import WireError
from trunkline.core.settings import GraphQLSettings
from trunkline.observe import telemetry
from trunkline_bridge.api.graphql.context import DEFAULT_PAGE_SIZE, OperationContext
from trunkline_bridge.api.graphql.errors import LIMIT_ERROR

MAX_TOKENS: Final = 1000
"""The number of words and signs of a document."""
MAX_NESTING: Final = 64
"""The number of fields and fragments inside each other."""
MAX_ALIASES: Final = 30
"""The number of fields of an operation with an alias, or with the name of one beside them."""
CALL_COST: Final = 10
"""The further cost of a field that calls the mesh."""

_NAME_CHARS: Final = 100


class Measure(NamedTuple):
    """The size of an operation, or of a part of it."""

    depth: int = 0
    cost: int = 0
    aliases: int = 0
    roots: int = 0
    """The number of fields at the top."""
    height: int = 0
    """The number of fields and fragments inside each other."""


def measure(
    schema: GraphQLSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
    variables: Mapping[str, Any],
    *,
    page_limit: int,
) -> Measure:
    """Return the size of an operation of a document that need not be valid.

    Raises:
        WireError: fragments are nested too deeply.
    """
    values = {
        definition.variable.name.value: value_from_ast_untyped(definition.default_value)
        for definition in operation.variable_definitions or ()
        if definition.default_value is not None
    }
    fragments = {
        definition.name.value: definition
        for definition in document.definitions
        if isinstance(definition, FragmentDefinitionNode)
    }
    root = schema.get_root_type(operation.operation)
    meter = _Meter(schema, fragments, {**values, **variables}, page_limit)
    return meter.measure(operation.selection_set, root, Counter(), 0)


class _Meter:
    """Measures the selections of one operation."""

    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Mapping[str, FragmentDefinitionNode],
        variables: Mapping[str, Any],
        page_limit: int,
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._variables = variables
        self._page_limit = page_limit
        self._roots = {schema.query_type, schema.mutation_type, schema.subscription_type}
        # The size of each fragment. It is None during the measurement, which finds circles.
        self._measured: dict[str, Measure | None] = {}

    def measure(
        self,
        selections: SelectionSetNode | None,
        parent: GraphQLNamedType | None,
        names: Counter[str],
        nesting: int,
    ) -> Measure:
        """Return the size of selections; `names` has the fields beside them."""
        _check_nesting(nesting)
        depth = cost = aliases = roots = height = 0
        for selection in selections.selections if selections else ():
            match selection:
                case FieldNode():
                    part = self._measure_field(selection, parent, names, nesting)
                case InlineFragmentNode():
                    part = self.measure(
                        selection.selection_set,
                        self._find_type(selection, parent),
                        names,
                        nesting + 1,
                    )
                case FragmentSpreadNode():
                    part = self._measure_fragment(selection.name.value, nesting + 1)
                case _:
                    continue
            depth = max(depth, part.depth)
            cost += part.cost
            aliases += part.aliases
            roots += part.roots
            height = max(height, part.height + 1)
        _check_nesting(nesting + height)
        return Measure(depth, cost, aliases, roots, height)

    def _measure_field(
        self,
        node: FieldNode,
        parent: GraphQLNamedType | None,
        names: Counter[str],
        nesting: int,
    ) -> Measure:
        name = node.name.value
        shown = node.alias.value if node.alias else name
        is_repeated = names[shown] > 0
        names[shown] += 1
        definition = None
        if isinstance(parent, GraphQLObjectType | GraphQLInterfaceType):
            definition = parent.fields.get(name)
        is_page = definition is not None and "first" in definition.args
        child = None if definition is None else get_named_type(definition.type)
        below = self.measure(node.selection_set, child, Counter(), nesting + 1)
        count = self._page_size(node) if is_page else 1
        call = CALL_COST if is_page or parent in self._roots else 0
        return Measure(
            # Introspection, which may be off, has its own limit, and is deeper.
            depth=1 if name.startswith("__") else below.depth + 1,
            cost=1 + call + count * below.cost,
            aliases=below.aliases + (node.alias is not None or is_repeated),
            roots=1,
            height=below.height,
        )

    def _measure_fragment(self, name: str, nesting: int) -> Measure:
        """Return the size of a fragment. Validation reports missing and circular fragments."""
        if name not in self._measured:
            self._measured[name] = None
            fragment = self._fragments.get(name)
            if fragment is None:
                return Measure()
            parent = self._find_type(fragment, None)
            self._measured[name] = self.measure(fragment.selection_set, parent, Counter(), nesting)
        return self._measured[name] or Measure()

    def _find_type(
        self, node: InlineFragmentNode | FragmentDefinitionNode, parent: GraphQLNamedType | None
    ) -> GraphQLNamedType | None:
        condition = node.type_condition
        return parent if condition is None else self._schema.get_type(condition.name.value)

    def _page_size(self, node: FieldNode) -> int:
        for argument in node.arguments or ():
            if argument.name.value != "first":
                continue
            value: object = None
            if isinstance(argument.value, IntValueNode):
                value = int(argument.value.value[:9])
            elif isinstance(argument.value, VariableNode):
                value = self._variables.get(argument.value.name.value)
            if isinstance(value, int):
                # A larger one is refused when the field is resolved.
                return min(max(value, 1), self._page_limit)
        return DEFAULT_PAGE_SIZE


def _check_nesting(levels: int) -> None:
    if levels > MAX_NESTING:
        raise WireError(LIMIT_ERROR, "fields and fragments are nested too deeply")


def check_limits(
    schema: GraphQLSchema,
    document: DocumentNode,
    operation: OperationDefinitionNode,
    variables: Mapping[str, Any],
    context: OperationContext,
    settings: GraphQLSettings,
) -> None:
    """Check an operation that need not be valid, count it, and name its span.

    Raises:
        WireError: it is too large.
        LimitExceededError: the account has made too many requests.
    """
    _describe_span(operation)
    found = measure(schema, document, operation, variables, page_limit=settings.page_size)
    for what, number, limit in (
        ("depth", found.depth, settings.depth),
        ("cost", found.cost, settings.cost),
        ("number of aliases and repeated fields", found.aliases, MAX_ALIASES),
    ):
        if number > limit:
            text = f"the {what} of the operation is {number}, at most {limit} is allowed"
            raise WireError(LIMIT_ERROR, f"{text}; ask for less, or in several operations")
    for _ in range(found.roots - context.counted):
        context.mesh.rates.count_request(context.caller.account)


def _describe_span(operation: OperationDefinitionNode) -> None:
    """Name the span of the request. The span has neither variables nor the operation's text."""
    span = trace.get_current_span()
    kind = operation.operation.value
    span.update_name(f"graphql.{kind}")
    span.set_attribute(telemetry.GRAPHQL_OPERATION_TYPE, kind)
    if operation.name is not None:
        span.set_attribute(telemetry.GRAPHQL_OPERATION_NAME, operation.name.value[:_NAME_CHARS])
