"""How the tool adapter runs its MCP servers."""

from dataclasses import dataclass

from trunkline.client.breaker import DEFAULTS, BreakerSettings


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """How servers are run. Times are in seconds."""

    connect_timeout_s: float = 60.0
    """How long a server may take from its start to its list of tools; callers wait for it. An
    entry of the file may say otherwise for its server."""
    call_timeout_s: float = 60.0
    """How long a call may take; an entry of the file may say otherwise for its server."""
    restart_delay_s: float = 0.5
    """Pause before the first restart; it doubles with every failure in a row."""
    restart_delay_max_s: float = 30.0
    """Longest pause; a server that was ready for so long starts over with the shortest."""
    probe_s: float = 60.0
    """How often a server elsewhere is asked for its tools anew: nothing else tells that it is gone
    before it is needed."""
    grace_s: float = 2.0
    """How long a server may take to exit before it is told, and then made to."""
    result_limit_bytes: int = 1024 * 1024
    """What is larger is kept with the task, and referred to; for whoever calls without a task it
    is a failure that says so."""
    breaker: BreakerSettings = DEFAULTS
    """When a server that keeps failing is left alone, neither called nor started."""
