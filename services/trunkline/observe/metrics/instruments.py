"""All instruments of the mesh, with their names, units, attributes and buckets.

The names for RPC, HTTP, generative AI and MCP are from OpenTelemetry's conventions. Other names
begin with `trunkline.`. `docs/metrics.md` lists them, and a test compares it with this table.
"""

from typing import Final

from trunkline.core.task_states import TaskState
from trunkline.observe import telemetry
from trunkline.observe.metrics.kinds import (
    Attribute,
    Counter,
    Gauge,
    Histogram,
    Instrument,
)

# OpenTelemetry's fallback for values that are not known.
_OTHER: Final = "_OTHER"

# The buckets of the conventions, in seconds, so that dashboards fit.
_CALL_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_MODEL_S: Final = tuple(0.01 * 2**power for power in range(14))
_CALLS: Final = tuple(2**power for power in range(8))
_AGENT_S: Final = tuple(0.1 * 2**power for power in range(13))
_MCP_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_TOKENS: Final = tuple(4**power for power in range(14))
# Our own buckets. A commit takes tens of microseconds, or some milliseconds with
# `synchronous = "full"`.
_COMMIT_S: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.5, 1, 2.5, 5, 10),
)
_TASK_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400)

_RPC_SYSTEM: Final = Attribute(
    telemetry.RPC_SYSTEM_NAME, "always `grpc`", frozenset({"grpc"}), other=_OTHER
)
_RPC_METHOD: Final = Attribute(
    telemetry.RPC_METHOD, "the method, as `package.Service/Method`", limit=200, other=_OTHER
)
_RPC_STATUS: Final = Attribute(telemetry.RPC_STATUS_CODE, "the status of gRPC", other=_OTHER)
_ERROR_TYPE: Final = Attribute(
    telemetry.ERROR_TYPE, "the kind of error; absent without one", other=_OTHER
)
_AGENT: Final = Attribute(telemetry.GEN_AI_AGENT_NAME, "the agent", limit=200)
_STATE: Final = Attribute(
    telemetry.TASK_STATE, "the state of the task", frozenset(state.value for state in TaskState)
)

RPC_SERVER_DURATION: Final = Histogram(
    "rpc.server.call.duration",
    "s",
    "Calls that this process answered, on trunks too. A stream counts when it ends.",
    [_RPC_SYSTEM, _RPC_METHOD, _RPC_STATUS, _ERROR_TYPE],
    buckets=_CALL_S,
)
RPC_CLIENT_DURATION: Final = Histogram(
    "rpc.client.call.duration",
    "s",
    "Calls to other processes of the mesh, on trunks too. A stream counts when it ends.",
    [
        _RPC_SYSTEM,
        _RPC_METHOD,
        _RPC_STATUS,
        _ERROR_TYPE,
        Attribute(telemetry.SERVER_ADDRESS, "the host that was called", other=_OTHER),
        Attribute(telemetry.SERVER_PORT, "its port", other=_OTHER),
    ],
    buckets=_CALL_S,
)
HTTP_SERVER_DURATION: Final = Histogram(
    "http.server.request.duration",
    "s",
    "Requests to the bridge, without probes. A stream counts when it ends.",
    [
        Attribute(
            telemetry.HTTP_REQUEST_METHOD,
            "the method",
            frozenset(
                {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY"}
                | {"TRACE"}
            ),
            other=_OTHER,
        ),
        Attribute("url.scheme", "`http` or `https`", frozenset({"http", "https"}), other=_OTHER),
        Attribute("http.route", "the path, with `{agent}` and other names in place of values"),
        Attribute(telemetry.HTTP_RESPONSE_STATUS_CODE, "the status", other=_OTHER),
        _ERROR_TYPE,
    ],
    buckets=_CALL_S,
)
_INVOCATION: Final = Attribute(
    telemetry.GEN_AI_OPERATION_NAME,
    "`invoke_workflow` of agents that are workflows",
    frozenset({telemetry.INVOKE_AGENT, telemetry.INVOKE_WORKFLOW}),
    other=_OTHER,
)
INVOKE_AGENT_DURATION: Final = Histogram(
    "gen_ai.invoke_agent.duration",
    "s",
    "Turns of agents: the time that an agent works on one message.",
    [_INVOCATION, _AGENT, _ERROR_TYPE],
    buckets=_AGENT_S,
)
MODEL_CALLS: Final = Histogram(
    "gen_ai.invoke_agent.inference_calls",
    "{inference_call}",
    "Calls of models in one turn of an agent.",
    [_INVOCATION, _AGENT],
    buckets=_CALLS,
)
TOOL_CALLS: Final = Histogram(
    "gen_ai.invoke_agent.tool_calls",
    "{tool_call}",
    "Calls of tools in one turn of an agent.",
    [_INVOCATION, _AGENT],
    buckets=_CALLS,
)
TASKS_OPEN: Final = Gauge(
    "trunkline.tasks.open",
    "{task}",
    "Tasks that have not ended, of the journals that this process holds.",
    [_AGENT, _STATE],
)
TASKS_CREATED: Final = Counter(
    "trunkline.tasks.created", "{task}", "Tasks that this process accepted.", [_AGENT]
)
TASKS_ENDED: Final = Counter(
    "trunkline.tasks.ended", "{task}", "Tasks that have ended.", [_AGENT, _STATE]
)
TASK_DURATION: Final = Histogram(
    "trunkline.task.duration",
    "s",
    "The time from a task's creation to its end, with all that it waited for.",
    [_AGENT, _STATE],
    buckets=_TASK_S,
)
EVENTS: Final = Counter("trunkline.journal.events", "{event}", "Events that were committed.")
COMMIT_DURATION: Final = Histogram(
    "trunkline.journal.commit.duration",
    "s",
    "The time of one transaction of a journal, which has the writes of all tasks at that moment.",
    buckets=_COMMIT_S,
)
COMMIT_LAG: Final = Histogram(
    "trunkline.journal.commit.lag",
    "s",
    "The time from the first write of a transaction to the moment when readers see it.",
    buckets=_COMMIT_S,
)
COMMITS_FAILED: Final = Counter(
    "trunkline.journal.commits.failed",
    "{commit}",
    "Transactions of journals that failed.",
    [_ERROR_TYPE],
)
MAINTENANCE_FAILED: Final = Counter(
    "trunkline.journal.maintenance.failed",
    "{step}",
    "Failed steps of checkpoints and retention of journals, which are tried again.",
    [_ERROR_TYPE],
)

# Models.
_OPERATION: Final = Attribute(
    telemetry.GEN_AI_OPERATION_NAME, "the operation: `chat`", other=_OTHER
)
_PROVIDER: Final = Attribute(
    telemetry.GEN_AI_PROVIDER_NAME, "the provider of the model, or the built-in model"
)
_MODEL: Final = Attribute(telemetry.GEN_AI_REQUEST_MODEL, "the model")

MODEL_DURATION: Final = Histogram(
    "gen_ai.client.inference.duration",
    "s",
    "Calls of models, from the request to the last piece of the reply.",
    [_OPERATION, _PROVIDER, _MODEL, _ERROR_TYPE],
    buckets=_MODEL_S,
)
MODEL_FIRST_CHUNK: Final = Histogram(
    "gen_ai.client.inference.time_to_first_chunk",
    "s",
    "The time from a request to a model to the first piece of its reply.",
    [_OPERATION, _PROVIDER, _MODEL],
    buckets=_MODEL_S,
)
_MODALITY: Final = Attribute("gen_ai.token.modality", "always `text`", frozenset({"text"}))
INPUT_TOKENS: Final = Counter(
    "gen_ai.client.inference.usage.input_tokens",
    "{token}",
    "Tokens that models read; estimated if their provider does not say.",
    [_OPERATION, _PROVIDER, _MODEL, _MODALITY],
)
OUTPUT_TOKENS: Final = Counter(
    "gen_ai.client.inference.usage.output_tokens",
    "{token}",
    "Tokens that models wrote; estimated if their provider does not say.",
    [_OPERATION, _PROVIDER, _MODEL, _MODALITY],
)
INPUT_TOKENS_OF_CALLS: Final = Histogram(
    "gen_ai.client.inference.operation.input_tokens",
    "{token}",
    "Tokens that the model of one call read.",
    [_OPERATION, _PROVIDER, _MODEL],
    buckets=_TOKENS,
)
OUTPUT_TOKENS_OF_CALLS: Final = Histogram(
    "gen_ai.client.inference.operation.output_tokens",
    "{token}",
    "Tokens that the model of one call wrote.",
    [_OPERATION, _PROVIDER, _MODEL],
    buckets=_TOKENS,
)
MODEL_COST: Final = Counter(
    "trunkline.model.cost",
    "USD",
    "The price of the tokens of models that have one in the settings.",
    [Attribute("trunkline.model", "the model, as `provider:name`")],
)

# Tools.
TOOL_DURATION: Final = Histogram(
    "gen_ai.execute_tool.duration",
    "s",
    "Calls of tools by agents, with all attempts.",
    [
        _AGENT,
        Attribute(telemetry.GEN_AI_TOOL_NAME, "the tool", limit=200),
        Attribute(
            telemetry.GEN_AI_TOOL_TYPE, "always `extension`", frozenset({telemetry.EXTENSION})
        ),
        _ERROR_TYPE,
    ],
    buckets=_MODEL_S,
)

# MCP servers.
_TRANSPORT: Final = Attribute(
    "network.transport", "`pipe` for stdio, `tcp` for HTTP", frozenset({"pipe", "tcp"})
)
MCP_OPERATION_DURATION: Final = Histogram(
    "mcp.client.operation.duration",
    "s",
    "Calls of tools of MCP servers, those whose result is an error with `tool_error`. A call that "
    "becomes a task of the server counts when it ends.",
    [
        Attribute("mcp.method.name", "the method: `tools/call`", other=_OTHER),
        Attribute(telemetry.GEN_AI_TOOL_NAME, "the tool", limit=200),
        Attribute(telemetry.TOOL_SERVER, "the server"),
        _TRANSPORT,
        _ERROR_TYPE,
    ],
    buckets=_MCP_S,
)
MCP_SESSION_DURATION: Final = Histogram(
    "mcp.client.session.duration",
    "s",
    "Sessions with MCP servers, counted when they end.",
    [Attribute(telemetry.TOOL_SERVER, "the server"), _TRANSPORT, _ERROR_TYPE],
    buckets=_MCP_S,
)

# Admission, and peers.
TURNS_RUNNING: Final = Gauge(
    "trunkline.admission.running", "{turn}", "Turns that run now.", [_AGENT]
)
TURNS_WAITING: Final = Gauge(
    "trunkline.admission.waiting",
    "{turn}",
    "Accepted turns that wait for an agent at its limit.",
    [_AGENT],
)
TURNS_REFUSED: Final = Counter(
    "trunkline.admission.refused",
    "{turn}",
    "Messages that were refused because an agent, a host or an account had no room.",
    [_AGENT, _ERROR_TYPE],
)
_PEER: Final = Attribute("trunkline.peer", "the address, the agent or the server")
BREAKERS: Final = Gauge(
    "trunkline.breakers",
    "{breaker}",
    "Circuit breakers of peers, by their state.",
    [
        _PEER,
        Attribute(
            "trunkline.breaker.state", "the state", frozenset({"closed", "open", "half-open"})
        ),
    ],
)
BREAKERS_OPENED: Final = Counter(
    "trunkline.breakers.opened", "{breaker}", "Openings of circuit breakers.", [_PEER]
)
_ROLE: Final = Attribute(
    "trunkline.trunk.role", "`client` or `server`", frozenset({"client", "server"})
)
TRUNKS: Final = Gauge(
    "trunkline.trunks", "{connection}", "Trunks to and from other processes.", [_ROLE]
)
TRUNK_CALLS: Final = Gauge(
    "trunkline.trunk.calls", "{call}", "Open calls and streams on trunks.", [_ROLE]
)

# Webhooks.
WEBHOOK_DURATION: Final = Histogram(
    "trunkline.webhook.attempt.duration",
    "s",
    "Attempts to deliver a notification to a webhook.",
    [_AGENT, _ERROR_TYPE],
    buckets=_CALL_S,
)
WEBHOOKS_PENDING: Final = Gauge(
    "trunkline.webhooks.pending",
    "{webhook}",
    "Webhooks of the journals of this process whose task has not ended, or with events to send.",
)

# Messages between agents.
_RECIPIENT: Final = Attribute(telemetry.MESSAGING_DESTINATION_NAME, "the recipient", limit=200)
MESSAGES_SENT: Final = Counter(
    "messaging.client.sent.messages",
    "{message}",
    "Messages that the service accepted, with replies and replays; its own notices are none.",
    [
        Attribute(telemetry.MESSAGING_SYSTEM, "always `trunkline`", frozenset({"trunkline"})),
        Attribute(
            telemetry.MESSAGING_OPERATION_NAME, "always `send`", frozenset({"send"}), other=_OTHER
        ),
        Attribute(telemetry.MESSAGE_TYPE, "the type of the message", limit=200),
    ],
)
DELIVERIES_ENDED: Final = Counter(
    "trunkline.message.deliveries",
    "{delivery}",
    "Deliveries that have ended. Deliveries in the state `dead` are dead letters.",
    [
        _RECIPIENT,
        Attribute(
            "trunkline.delivery.state",
            "how it ended",
            frozenset({"handled", "dead", "expired", "canceled"}),
        ),
    ],
)
DELIVERIES_RETRIED: Final = Counter(
    "trunkline.message.retries",
    "{attempt}",
    "Attempts after which a delivery was postponed.",
    [_RECIPIENT],
)
DELIVERIES_WAITING: Final = Gauge(
    "trunkline.messages.waiting", "{delivery}", "Deliveries that wait for their turn."
)
DELIVERIES_RUNNING: Final = Gauge(
    "trunkline.messages.running", "{delivery}", "Deliveries whose handler runs."
)

# Workflows.
NODE_DURATION: Final = Histogram(
    "trunkline.workflow.node.duration",
    "s",
    "Runs of the nodes of workflows.",
    [
        Attribute(telemetry.WORKFLOW_NAME, "the workflow"),
        Attribute("trunkline.workflow.node", "the node", limit=300),
        _ERROR_TYPE,
    ],
    buckets=_AGENT_S,
)

# Journals and hosts.
JOURNALS_HELD: Final = Gauge(
    "trunkline.journals.held", "{journal}", "Journals that this process serves."
)
LEASE_RENEWALS: Final = Counter(
    "trunkline.lease.renewals",
    "{renewal}",
    "Renewals of leases on journals. A failed renewal has its reason.",
    [_ERROR_TYPE],
)
LEASES_LOST: Final = Counter(
    "trunkline.leases.lost", "{lease}", "Leases that another host took, or that were given back."
)
TAKEOVERS: Final = Counter(
    "trunkline.takeovers",
    "{journal}",
    "Journals of dead hosts that this process took over, with the reason of tries that failed.",
    [_ERROR_TYPE],
)
TAKEOVER_TIME: Final = Histogram(
    "trunkline.takeover.time",
    "s",
    "The time for which a journal had no host, until this process took it over.",
    buckets=_TASK_S,
)
HOSTS: Final = Gauge("trunkline.hosts", "{host}", "Processes that the registry has on the mesh.")

INSTRUMENTS: Final[tuple[Instrument, ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Instrument)
)
"""All of them, in the order of this module."""
