"""All instruments of the mesh, with their names, units, attributes and buckets.

The names of RPC, HTTP, generative AI and MCP are those of OpenTelemetry's conventions; the others
begin with `trunkline.`. `docs/metrics.md` lists them, and a test compares it with this table.
"""

from typing import Final

from trunkline import telemetry
from trunkline.metrics.kinds import (
    Attribute,
    Counter,
    Gauge,
    Histogram,
    HotHistogram,
    Instrument,
)
from trunkline.task_states import TaskState

# OpenTelemetry's fallback for values that are not known.
_OTHER: Final = "_OTHER"

# Buckets of the conventions, in seconds. They are the conventions' own, so that dashboards fit.
_CALL_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_MODEL_S: Final = tuple(0.01 * 2**power for power in range(14))
_AGENT_S: Final = tuple(0.1 * 2**power for power in range(13))
_MCP_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_TOKENS: Final = tuple(4**power for power in range(14))
# Ours. A commit takes tens of microseconds, and with `synchronous = "full"` some milliseconds.
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
    "trunkline.task.state", "the state of the task", frozenset(state.value for state in TaskState)
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
INVOKE_AGENT_DURATION: Final = Histogram(
    "gen_ai.invoke_agent.duration",
    "s",
    "Turns of agents: the time that an agent works on one message.",
    [_AGENT, _ERROR_TYPE],
    buckets=_AGENT_S,
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
COMMIT_DURATION: Final = HotHistogram(
    "trunkline.journal.commit.duration",
    "s",
    "The time of one transaction of a journal, which has the writes of all tasks at that moment.",
    buckets=_COMMIT_S,
)
COMMIT_LAG: Final = HotHistogram(
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

INSTRUMENTS: Final[tuple[Instrument, ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Instrument)
)
"""All of them, in the order of this module."""
