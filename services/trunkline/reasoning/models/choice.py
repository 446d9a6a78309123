"""Which model an agent has, by the settings, and what one reply of a model may take."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from trunkline.settings import AgentSettings, ModelSettings, Settings

RULES: Final = "rules"
"""The model that is built in."""

DEFAULTS: Final = ModelSettings(
    timeout_s=300.0, first_token_s=60.0, max_tokens=4096, turn_tokens=200_000
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model by its name, others for when it can't answer, and what is set of models."""

    name: str = RULES
    fallbacks: tuple[str, ...] = ()
    tables: Mapping[str, ModelSettings] = field(default_factory=dict)
    check: bool | None = None
    """Whether it judges its answers before they are final; None: if it isn't the built-in one."""

    @classmethod
    def of_agent(cls, settings: Settings, agent: str) -> Self:
        """Return what an agent reasons with."""
        own = settings.agent_options.get(agent, AgentSettings())
        fallbacks = own.fallbacks or settings.fallbacks
        return cls(own.model or settings.model, fallbacks, settings.models, own.check)

    @classmethod
    def of_planner(cls, settings: Settings, own: str = "") -> Self:
        """Return what a supervisor plans with; `own` is its own setting, if it has one."""
        name = own or settings.planner_model or settings.model
        return cls(name, settings.fallbacks, settings.models)

    def options(self, name: str) -> ModelSettings:
        """Return what is set of a model: by its own table, its provider's, or nobody."""
        tables = [self.tables.get(name), self.tables.get(name.partition(":")[0]), DEFAULTS]
        layers = [table for table in tables if table is not None]
        found: dict[str, Any] = {}
        for one in fields(ModelSettings):
            said = (getattr(layer, one.name) for layer in layers)
            found[one.name] = next((value for value in said if value is not None), None)
        extra: dict[str, object] = {}
        for layer in reversed(layers):
            extra |= layer.extra
        return ModelSettings(**found | {"extra": extra})
