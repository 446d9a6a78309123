"""Validates a workflow as a whole before it runs: all faults at once, each with its place.

Validation runs no code of the workflow: the modules of functions are read, not imported. Names of
agents, tools and workflows are checked only against a mesh that is known.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trunkline.core.durations import parse_duration
from trunkline.core.json_types import JsonValue
from trunkline.core.source_documents import Fault, Keys, suggest, walk_texts
from trunkline.errors import ConfigurationError
from trunkline.workflows.definition import (
    BUILT_IN_ACTIONS,
    ActionNode,
    AgentNode,
    ApprovalNode,
    ConditionNode,
    EndNode,
    Node,
    ToolNode,
    WaitNode,
    Workflow,
    WorkflowNode,
)
from trunkline.workflows.expression_types import ExpressionTypes, TypeFinding, describe, list_kinds
from trunkline.workflows.expressions import (
    Expression,
    ExpressionError,
    Template,
    has_template,
    parse_each,
    show_path,
)
from trunkline.workflows.functions import find_function_problem
from trunkline.workflows.graph_checks import GraphChecks
from trunkline.workflows.reader import WorkflowSource, convert_source, read_source
from trunkline.workflows.run_values import find_defaults
from trunkline.workflows.schemas import (
    UncheckableSchemaError,
    find_problems,
    find_schema_problems,
)

_RESULT_FIELDS: Final = ("node", "text", "value", "data", "state", "label", "time")
_MAX_WAIT_S: Final = 365 * 86400.0


@dataclass(frozen=True, slots=True)
class MeshNames:
    """The names of a mesh, which workflows may use. Names that are not known are not checked."""

    agents: frozenset[str] | None = None
    tools: Mapping[str, Mapping[str, Any]] | None = None
    """The input schema of each tool, by `SERVER/TOOL`."""
    workflows: Mapping[str, Mapping[str, Any] | None] | None = None
    """The input schema of each workflow."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome of a validation."""

    workflow: Workflow | None
    """The workflow, unless it has faults."""
    faults: tuple[Fault, ...]
    """All faults, in the order of the file."""
    unchecked: tuple[str, ...] = ()
    """Checks that were left out because no mesh was known, in words."""


def validate_source(source: WorkflowSource, names: MeshNames | None = None) -> Validation:
    """Validate a workflow that was read."""
    document = source.document
    if isinstance(document.value, Mapping):
        _Checks(source, names or MeshNames()).run()
    faults = tuple(sorted(document.faults, key=lambda fault: (fault.line, fault.column)))
    workflow = None if faults else source.workflow
    return Validation(workflow, faults, _list_unchecked(source, names or MeshNames()))


def validate_file(path: Path, names: MeshNames | None = None) -> Validation:
    """Validate a file.

    Raises:
        ConfigurationError: it can't be read.
    """
    try:
        source = read_source(path)
    except OSError as error:
        raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
    return validate_source(source, names)


def list_tool_servers(path: Path) -> frozenset[str]:
    """Return the MCP servers whose tools a file uses; none if it can't be read."""
    try:
        source = read_source(path)
    except (OSError, ConfigurationError):
        return frozenset()
    nodes = [node for _, node in source.nodes.values()]
    return frozenset(node.tool.partition("/")[0] for node in nodes if isinstance(node, ToolNode))


def load_workflow(path: str | Path, names: MeshNames | None = None) -> Workflow:
    """Read and validate a workflow file, YAML or JSON.

    Raises:
        ConfigurationError: it can't be read or has faults. The text names all of them.
    """
    return require_valid(validate_file(Path(path), names), str(path))


def load_workflow_dict(value: Mapping[str, Any], names: MeshNames | None = None) -> Workflow:
    """Read and validate a workflow as a dictionary. Raises as `load_workflow`."""
    return require_valid(validate_source(convert_source(value), names), "workflow")


def require_valid(validation: Validation, file: str) -> Workflow:
    """Return the workflow. Raises ConfigurationError with all faults if there are any."""
    if validation.workflow is not None:
        return validation.workflow
    lines = [
        f"line {fault.line}: {fault.where}{': ' if fault.where else ''}{fault.problem}"
        for fault in validation.faults
    ]
    raise ConfigurationError(file, "; ".join(lines))


def _list_unchecked(source: WorkflowSource, names: MeshNames) -> tuple[str, ...]:
    nodes = [node for _, node in source.nodes.values()]
    kinds = {
        "agents": (names.agents, AgentNode),
        "tools": (names.tools, ToolNode),
        "workflows": (names.workflows, WorkflowNode),
    }
    return tuple(
        kind
        for kind, (known, node_class) in kinds.items()
        if known is None and any(isinstance(node, node_class) for node in nodes)
    )


@dataclass(slots=True)
class _Checks:
    """The checks of one workflow. Faults go to its document."""

    source: WorkflowSource
    names: MeshNames
    graph: GraphChecks = field(init=False)
    data_names: dict[str, set[str]] = field(default_factory=dict)
    """The names of values that each action sets."""
    types: ExpressionTypes = field(init=False)

    def run(self) -> None:
        self.graph = GraphChecks(self.source)
        self.graph.check()
        for node_id, node in self.graph.nodes.items():
            if isinstance(node, ActionNode):
                self.data_names[node_id] = set(node.set)
        self.types = ExpressionTypes(None, {})
        value = self.source.document.value
        found = len(self.source.document.faults)
        for key in ("inputs", "outputs"):
            if isinstance(value.get(key), Mapping):
                self._check_schema((key,), value[key])
        has_schemas = len(self.source.document.faults) == found
        if self.source.inputs is not None and has_schemas:
            self._check_defaults(self.source.inputs)
        if has_schemas:
            self.types = ExpressionTypes(self.source.inputs, self._list_literals())
            self._check_outputs()
        for node in self.graph.nodes.values():
            if node is not None and not self.source.document.is_full:
                self._check_node(self.graph.keys_of(node.id), node)

    def _check_node(self, keys: Keys, node: Node) -> None:
        for name in ("message", "agent", "arguments", "set", "config", "inputs", "output"):
            # The message of a wait is the name of a type.
            if hasattr(node, name) and not isinstance(node, WaitNode):
                self._check_templates((*keys, name), getattr(node, name), node.id)
        match node:
            case AgentNode():
                self._check_agent(keys, node)
            case ToolNode():
                self._check_tool(keys, node)
            case ConditionNode():
                self._check_condition(keys, node)
            case ActionNode():
                self._check_action(keys, node)
            case ApprovalNode():
                self._check_templates((*keys, "question"), node.question, node.id)
            case WaitNode():
                self._check_wait(keys, node)
            case WorkflowNode():
                self._check_sub_workflow(keys, node)
            case _:
                pass

    def _is_on_mesh(self, keys: Keys, kind: str, name: str, known: Collection[str] | None) -> bool:
        """Return whether a mesh is known and has this name. A name that it lacks is a fault."""
        if known is None or name in known:
            return known is not None
        self._add(keys, f"the mesh has no {kind} {name!r}; {suggest(name, list(known))}")
        return False

    def _check_agent(self, keys: Keys, node: AgentNode) -> None:
        if not node.agent:
            self._add((*keys, "agent"), "is empty; name an agent")
        elif "${" not in node.agent:
            self._is_on_mesh((*keys, "agent"), "agent", node.agent, self.names.agents)

    def _check_tool(self, keys: Keys, node: ToolNode) -> None:
        server, _, tool = node.tool.partition("/")
        known = self.names.tools
        if not server or not tool:
            self._add((*keys, "tool"), f"{node.tool!r} is no tool; write SERVER/TOOL")
        elif self._is_on_mesh((*keys, "tool"), "tool", node.tool, known) and known is not None:
            self._check_fields((*keys, "arguments"), node.arguments, known[node.tool], "argument")

    def _check_condition(self, keys: Keys, node: ConditionNode) -> None:
        if bool(node.handler) == bool(node.cases):
            self._add(keys, "needs either `cases` or a `handler`")
        if node.handler:
            self._check_function((*keys, "handler"), node.handler)
        seen: set[str] = set()
        for number, case in enumerate(node.cases):
            place: Keys = (*keys, "cases", number)
            if case.label in seen or not case.label:
                problem = "is empty" if not case.label else f"{case.label!r} is there twice"
                self._add((*place, "label"), f"{problem}; labels of a condition are unique")
            seen.add(case.label)
            self._check_expression((*place, "when"), case.when, node.id)

    def _check_action(self, keys: Keys, node: ActionNode) -> None:
        if not node.handler and not node.set:
            self._add(keys, "needs `set` or a `handler`")
        if not node.handler:
            return
        if node.handler in BUILT_IN_ACTIONS:
            for name in BUILT_IN_ACTIONS[node.handler]:
                if name not in node.config:
                    self._add((*keys, "config"), f"`{name}` is missing; {node.handler} needs it")
        elif ":" not in node.handler:
            near = suggest(node.handler, list(BUILT_IN_ACTIONS))
            problem = f"there is no built-in action {node.handler!r}; {near} or write module:name"
            self._add((*keys, "handler"), problem)
        else:
            self._check_function((*keys, "handler"), node.handler)

    def _check_wait(self, keys: Keys, node: WaitNode) -> None:
        if not node.message and node.duration is None:
            self._add(keys, "needs a `message` or a `duration`")
        if node.duration is not None and parse_duration(node.duration) > _MAX_WAIT_S:
            self._add((*keys, "duration"), "is longer than a year")
        if not node.when:
            return
        if not node.message:
            self._add((*keys, "when"), "needs `message`, the type of the message to wait for")
        self._check_expression((*keys, "when"), node.when, node.id, has_message=True)

    def _check_sub_workflow(self, keys: Keys, node: WorkflowNode) -> None:
        own = self.source.document.value.get("name")
        if node.workflow == own:
            self._add((*keys, "workflow"), "is this workflow itself; use an edge back instead")
            return
        place, known = (*keys, "workflow"), self.names.workflows
        if self._is_on_mesh(place, "workflow", node.workflow, known) and known is not None:
            schema = known[node.workflow]
            if schema is not None:
                self._check_fields((*keys, "inputs"), node.inputs, schema, "argument")

    def _check_function(self, keys: Keys, name: str) -> None:
        problem = find_function_problem(name)
        if problem:
            self._add(keys, problem)

    def _check_schema(self, keys: Keys, schema: Mapping[str, Any]) -> None:
        for place, problem in find_schema_problems(schema):
            self._add((*keys, *place), problem)

    def _check_defaults(self, schema: Mapping[str, Any]) -> None:
        for name, value in find_defaults(schema).items():
            keys: Keys = ("inputs", "properties", name)
            try:
                problems = find_problems(schema, value, part=schema["properties"][name])
            except UncheckableSchemaError as error:
                self._add(keys, f"is no JSON Schema that can be checked: {error}")
                continue
            for _, problem in problems:
                self._add((*keys, "default"), problem)

    def _check_templates(self, keys: Keys, value: Any, node_id: str) -> None:  # noqa: ANN401
        for place, text in walk_texts(value, keys):
            for expression in parse_each(text) if "$" in text else ():
                if isinstance(expression, ExpressionError):
                    self._add(place, str(expression))
                else:
                    self._check_names(place, expression, node_id, has_message=False)

    def _check_expression(
        self, keys: Keys, text: str, node_id: str, *, has_message: bool = False
    ) -> None:
        try:
            expression = Expression.parse(text)
        except ExpressionError as error:
            self._add(keys, str(error))
            return
        outcome = self._check_names(keys, expression, node_id, has_message=has_message)
        values = None if "?" in text else outcome.values
        if values and not any(isinstance(value, bool) for value in values):
            problem = f"`{text}` is {describe(values)}; a condition has to be true or false"
            self._add(keys, f"{problem}, such as `input.count > 0`")

    def _check_names(
        self, keys: Keys, expression: Expression, node_id: str, *, has_message: bool
    ) -> TypeFinding:
        if "message" in expression.variables and not has_message:
            self._add(keys, "`message` is only for the `when` of a wait; read `last` instead")
        found = len(self.source.document.faults)
        for path in expression.references:
            match path:
                case ("nodes", name, *fields):
                    self._check_earlier(keys, name, node_id)
                    self._check_field(keys, show_path(("nodes", name)), fields, _RESULT_FIELDS)
                case ("last", *fields):
                    self._check_field(keys, "last", fields, _RESULT_FIELDS)
                case ("data", name, *_):
                    self._check_data(keys, name, node_id)
                case ("input", name, *_):
                    self._check_input(keys, name)
                case _:
                    pass
        if len(self.source.document.faults) > found:
            return TypeFinding()
        outcome = self.types.check(expression)
        if outcome.problem:
            self._add(keys, outcome.problem)
        return outcome

    def _list_literals(self) -> dict[str, list[Any]]:
        """Return the values that actions set, by name, where all actions set literals."""
        values: dict[str, list[Any]] = {}
        if None in self.graph.nodes.values():
            return values
        sets = [node.set for node in self.graph.nodes.values() if isinstance(node, ActionNode)]
        for name in {name for each in sets for name in each}:
            found = [each[name] for each in sets if name in each]
            if not any(map(has_template, found)):
                values[name] = found
        return values

    def _check_outputs(self) -> None:
        """Check what ends answer against `outputs`, as far as it is known before a run."""
        schema = self.source.document.value.get("outputs")
        if not isinstance(schema, Mapping):
            return
        for node in self.graph.nodes.values():
            if not isinstance(node, EndNode) or node.state != "completed" or node.output is None:
                continue
            keys: Keys = (*self.graph.keys_of(node.id), "output")
            kinds = list_kinds(self._find_values(node.output) or ())
            if kinds == ["string"]:
                # A text is the answer's field `text`.
                self._check_value(keys, {"text": node.output}, schema, schema)
            elif kinds and not {"string", "null"} & {*kinds}:
                self._check_value(keys, node.output, schema, schema)

    def _check_value(
        self,
        keys: Keys,
        value: JsonValue,  # with expressions
        schema: Any,  # noqa: ANN401  a JSON Schema
        root: Mapping[str, Any],
    ) -> None:
        """Check a value with expressions in it against a part of a schema, as far as it is known.

        `root` is the whole schema, to which the references in the part lead.
        """
        if not isinstance(schema, Mapping):
            return
        if not has_template(value):
            # A reference to nowhere is a fault of the schema, which has its own place.
            with suppress(UncheckableSchemaError):
                for place, problem in find_problems(root, value, part=schema):
                    self._add((*keys, *place), problem)
            return
        kind = schema.get("type")
        allowed = [kind] if isinstance(kind, str) else list(kind or ())
        values = self._find_values(value)
        if values and allowed and not any(_fits(each, allowed) for each in values):
            problem = f"is {describe(values)}, and has to be of type {' or '.join(allowed)}"
            self._add(keys, problem)
        elif isinstance(value, Mapping):
            self._check_fields(keys, value, schema, "property", root)
        elif isinstance(value, list | tuple):
            for index, item in enumerate(value):
                self._check_value((*keys, index), item, schema.get("items"), root)

    def _check_fields(
        self,
        keys: Keys,
        values: Mapping[str, Any],
        schema: Mapping[str, Any],
        noun: str,
        root: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the members of an object, each of which `noun` names."""
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        for name in schema.get("required", ()):
            if name not in values:
                self._add(keys, f"{name!r} is missing, which is required")
        for name, value in values.items():
            if name in properties:
                self._check_value((*keys, name), value, properties[name], root or schema)
            elif schema.get("additionalProperties") is False and "patternProperties" not in schema:
                near = suggest(name, list(properties))
                self._add((*keys, name), f"there is no {noun} {name!r}; {near}")

    def _find_values(self, value: JsonValue) -> Sequence[Any] | None:
        """Return a value of each form that a text or a JSON value has, if its forms are known."""
        if not isinstance(value, str) or "$" not in value:
            return (value,)
        try:
            template = Template.parse(value)
        except ExpressionError:
            return None
        if len(template.pieces) == 1 and isinstance(template.pieces[0], Expression):
            expression = template.pieces[0]
            # The forms of a choice are not all known from the samples.
            return None if "?" in expression.source else self.types.check(expression).values
        return (value,)

    def _check_earlier(self, keys: Keys, name: str, node_id: str) -> None:
        if name not in self.graph.nodes:
            problem = f"`{show_path(('nodes', name))}`: there is no node {name!r}; "
            self._add(keys, problem + suggest(name, list(self.graph.nodes)))
            return
        earlier = self.graph.find_earlier(node_id)
        if name not in earlier:
            problem = (
                f"`{show_path(('nodes', name))}`: node {name!r} can't have run before {node_id!r}"
            )
            self._add(keys, f"{problem}; {suggest(name, sorted(earlier))}")

    def _check_field(
        self, keys: Keys, variable: str, fields: list[str], known: tuple[str, ...]
    ) -> None:
        if fields and fields[0] not in known:
            problem = f"`{variable}` has no {fields[0]!r}; {suggest(fields[0], known)}"
            self._add(keys, problem)

    def _check_data(self, keys: Keys, name: str, node_id: str) -> None:
        earlier = self.graph.find_earlier(node_id)
        if any(self.graph.nodes[each] is None for each in earlier):
            # A node with faults may be an action that sets it.
            return
        known = {each for action in earlier for each in self.data_names.get(action, ())}
        if name not in known:
            problem = f"`{show_path(('data', name))}`: no action before this node sets it; "
            self._add(keys, problem + suggest(name, sorted(known)))

    def _check_input(self, keys: Keys, name: str) -> None:
        schema = self.source.inputs
        properties = None if schema is None else schema.get("properties")
        if not isinstance(properties, Mapping) or schema is None:
            return
        if name not in properties and not schema.get("additionalProperties"):
            problem = f"`{show_path(('input', name))}`: `inputs` has no property {name!r}; "
            self._add(keys, problem + suggest(name, list(properties)))

    def _add(self, keys: Keys, problem: str) -> None:
        self.source.document.add(keys, problem)


def _fits(value: JsonValue, kinds: Collection[str]) -> bool:
    """Return whether a value is of one of the types of JSON Schema."""
    (kind,) = list_kinds([value])
    if kind == "number" and value.is_integer():
        kind = "integer"
    return kind in kinds or (kind == "integer" and "number" in kinds)
