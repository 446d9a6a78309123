"""What can be set of one supervisor."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisorOptions:
    """Of one supervisor: a `[supervisor.NAME]` table of `trunkline.toml`, which also makes it.

    The one that is there anyway is named `supervisor`.
    """

    agents: tuple[str, ...] = ()
    """Whom it may ask, other supervisors too; none: every agent that says what it is for."""
    description: str = ""
    """What it is for. Other supervisors ask it if this or `tags` is set."""
    tags: tuple[str, ...] = ()
    """Words by which other supervisors find it in a request."""
    examples: tuple[str, ...] = ()
    """Requests that it can answer."""
    default_agent: str = ""
    """Who gets what fits nobody clearly; empty: the user is asked."""
    model: str = ""
    """What it plans with; empty: `planner_model` of the mesh."""
