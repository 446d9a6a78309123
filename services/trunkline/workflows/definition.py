"""The definition of a workflow: what a file or a builder says, before it is validated as a whole.

The models check the shape of each node and edge. `trunkline.workflows.validation` checks what only
the whole shows: reachability, names, labels, types and loops.

Expressions are CEL (https://cel.dev). In texts, `${EXPRESSION}` is replaced by its value; a text
that is one `${EXPRESSION}` becomes the value itself, with its type. Expressions read these
variables:

- `input`: the input of the run, by the schema `inputs`
- `nodes`: the results of the nodes that have run, by id: `text`, `value`, `data`, `state`, `label`
- `last`: the result of the node that ran last, with its id as `node`
- `data`: values that actions have set
- `steps`: the number of nodes that have run
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from trunkline.core.attribute_docs import describe_properties
from trunkline.core.durations import DURATION_PATTERN
from trunkline.core.names import NAME_PATTERN

DEFAULT_STEP_LIMIT: Final = 50
"""The number of nodes that a run executes at most, unless the workflow says otherwise."""

WorkflowName: TypeAlias = Annotated[str, Field(pattern=rf"^{NAME_PATTERN}$")]
NodeId: TypeAlias = WorkflowName
"""Expressions read `nodes.ID`, or `nodes["ID"]` if it is no identifier of CEL."""
FunctionName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""A Python function: `module:name`."""
TemplateText: TypeAlias = str
"""A text with `${EXPRESSION}`."""
Duration: TypeAlias = Annotated[str, Field(pattern=DURATION_PATTERN)]
"""A time such as `30s`, `10m` or `2h`."""

BUILT_IN_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {"broadcast": (), "send": ("recipient",)}
"""The handlers of actions that are no Python functions, with the `config` that they need."""

JsonSchema: TypeAlias = Mapping[str, Any]


class _Model(BaseModel):
    # Every mesh loads this module, but only one with workflows validates them.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        defer_build=True,
        json_schema_extra=describe_properties,
    )


class Retry(_Model):
    """Repeats a node that failed, with exponential back-off and jitter."""

    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """The number of attempts, with the first one."""
    backoff: Duration = "1s"
    """The wait before the second attempt. Each further attempt doubles it."""
    max_backoff: Duration = "30s"


class _Node(_Model):
    id: NodeId
    description: str = ""
    timeout: Duration | None = None
    """The node fails after this time."""
    retry: Retry | None = None


class StartNode(_Node):
    """The node where a run begins."""

    type: Literal["start"] = "start"


class EndNode(_Node):
    """A node where a run ends. A workflow may have several."""

    type: Literal["end"] = "end"
    output: TemplateText | Mapping[str, Any] | None = None
    """The answer; by default the result of the node before."""
    state: Literal["completed", "failed", "rejected"] = "completed"


class AgentNode(_Node):
    """Asks an agent."""

    type: Literal["agent"] = "agent"
    agent: TemplateText
    message: TemplateText | Mapping[str, Any] = "${last.text}"
    """A text, or an object that the agent gets as data."""


class ToolNode(_Node):
    """Calls a tool of an MCP server."""

    type: Literal["tool"] = "tool"
    tool: str
    """`SERVER/TOOL`."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)


class Case(_Model):
    """One way out of a condition."""

    label: str
    when: str
    """A CEL expression that is true or false."""


class ConditionNode(_Node):
    """Chooses the label of the edges to follow: the first case that is true, else `otherwise`."""

    type: Literal["condition"] = "condition"
    cases: Sequence[Case] = ()
    handler: FunctionName | str = ""
    """Instead of cases: a function that takes the last message and the context and returns a label
    or a bool (`true`, `false`), or the name of a built-in one."""
    otherwise: str = "otherwise"


class ActionNode(_Node):
    """Sets values, or calls a function or a built-in action."""

    type: Literal["action"] = "action"
    set: Mapping[str, Any] = Field(default_factory=dict)
    """Values for `data`."""
    handler: FunctionName | str = ""
    """A function that takes the last message and the context, or a built-in action: `broadcast`,
    `send`."""
    config: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the handler."""


class ApprovalNode(_Node):
    """Asks a person. Its labels are `approved` and `rejected`."""

    type: Literal["approval"] = "approval"
    question: TemplateText
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Values that the person sees and may change. The node's `data` has it as approved."""


class ParallelNode(_Node):
    """Runs all its outgoing edges at once, until they meet at `join`."""

    type: Literal["parallel"] = "parallel"
    join: NodeId
    """The node that runs when all branches have arrived."""


class WaitNode(_Node):
    """Waits for a message between agents, for a time, or both."""

    type: Literal["wait"] = "wait"
    message: str = ""
    """The type of the message that ends the wait, in the conversation of the run."""
    when: str = ""
    """A CEL expression over `message` that has to be true."""
    duration: Duration | None = None
    """Without `message`: the time to wait. With it, the label after this time is `timeout`."""


class WorkflowNode(_Node):
    """Runs another workflow and waits for its end."""

    type: Literal["workflow"] = "workflow"
    workflow: WorkflowName
    version: int | None = None
    """By default the newest when the run begins."""
    inputs: Mapping[str, Any] = Field(default_factory=dict)


Node: TypeAlias = Annotated[
    StartNode
    | EndNode
    | AgentNode
    | ToolNode
    | ConditionNode
    | ActionNode
    | ApprovalNode
    | ParallelNode
    | WaitNode
    | WorkflowNode,
    Field(discriminator="type"),
]


class Edge(_Model):
    """A way from one node to another."""

    source: NodeId = Field(alias="from")
    target: NodeId = Field(alias="to")
    condition: str = ""
    """Followed only if the node's label is this one. Empty: always, unless the node failed. A node
    that failed has the label `failed`; without an edge for it, the run fails."""
    priority: int = 0
    """Of several edges that fit, the highest is followed; of equal ones the first."""


class Limits(_Model):
    """The limits of one run."""

    steps: Annotated[int, Field(ge=1, le=10_000)] = DEFAULT_STEP_LIMIT
    time: Duration | None = None


class Workflow(_Model):
    """A workflow."""

    name: WorkflowName
    version: Annotated[int, Field(ge=1)] = 1
    description: str = ""
    tags: Sequence[str] = ()
    examples: Sequence[str] = ()
    inputs: JsonSchema | None = None
    """JSON Schema of the input; by default `{"text": string}`, the text of the request."""
    outputs: JsonSchema | None = None
    """JSON Schema of the answer."""
    limits: Limits = Field(default_factory=Limits)
    nodes: Annotated[Sequence[Node], Field(min_length=1)]
    edges: Sequence[Edge] = ()


def build_workflow_schema() -> dict[str, Any]:
    """Return the JSON schema of workflow files, by which editors complete and check them."""
    schema = Workflow.model_json_schema(by_alias=True)
    for name, definition in schema["$defs"].items():
        if name.endswith("Node"):
            # It selects the other fields. In Python, the class does.
            definition["required"] = ["type", *definition.get("required", ())]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
