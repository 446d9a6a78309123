"""Models with fallbacks, and the settings that choose a model."""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.agents.reasoning.models.model_client import ModelClient, OnChunk, OnText
from trunkline.agents.reasoning.models.model_errors import ModelCallError
from trunkline.agents.reasoning.models.providers import find_provider
from trunkline.agents.reasoning.models.replies import adapt_messages
from trunkline.core.backoff import Backoff
from trunkline.core.settings import AgentSettings, ModelSettings, Settings
from trunkline.errors import ModelOverflowError, ModelUnavailableError

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from trunkline.tasks.usage_meter import UsageMeter


RULES: Final = "rules"
"""The name of the built-in model."""

DEFAULTS: Final = ModelSettings(
    timeout_s=300.0, first_token_s=60.0, max_tokens=4096, turn_tokens=200_000
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The name of a model, the names of its fallbacks, and the options of models."""

    name: str = RULES
    fallbacks: tuple[str, ...] = ()
    tables: Mapping[str, ModelSettings] = field(default_factory=dict)
    check: bool | None = None
    """True if the model checks its answers. By default it does, unless it is the built-in model."""

    @classmethod
    def for_agent(cls, settings: Settings, agent: str) -> Self:
        """Return the choice for an agent."""
        options = settings.agent_options.get(agent, AgentSettings())
        fallbacks = options.fallbacks or settings.fallbacks
        return cls(options.model or settings.model, fallbacks, settings.models, options.check)

    @classmethod
    def for_planner(cls, settings: Settings, own: str = "") -> Self:
        """Return the choice for a planner. `own` is the supervisor's own setting, or ""."""
        name = own or settings.planner_model or settings.model
        return cls(name, settings.fallbacks, settings.models)

    def resolve_options(self, name: str) -> ModelSettings:
        """Return a model's options: from its own table, then its provider's, then DEFAULTS."""
        tables = [self.tables.get(name), self.tables.get(name.partition(":")[0]), DEFAULTS]
        layers = [table for table in tables if table is not None]
        values: dict[str, Any] = {}
        for option in fields(ModelSettings):
            candidates = (getattr(layer, option.name) for layer in layers)
            values[option.name] = next((value for value in candidates if value is not None), None)
        extra: dict[str, object] = {}
        for layer in reversed(layers):
            extra |= layer.extra
        return ModelSettings(**values | {"extra": extra})


logger = logging.getLogger(__name__)

_ROUNDS: Final = 3
"""The number of calls to each model that may recover."""
FIRST_PAUSE_S = 0.5
"""The pause before the second round, in seconds. It doubles before each further round."""
_LONGEST_WAIT_S: Final = 15.0
"""Models that request a longer pause are not called again."""


class Model:
    """A model and its fallbacks. One instance serves any number of turns at once."""

    def __init__(self, models: Sequence[ModelClient]) -> None:
        self._models = tuple(models)

    @classmethod
    def from_chat_model(cls, chat: "BaseChatModel", *, name: str = "scripted") -> Self:
        """Wrap a LangChain chat model, with the default time limits."""
        return cls([ModelClient(name, DEFAULTS, lambda: chat)])

    @property
    def name(self) -> str:
        """The name of the first model. The others are its fallbacks."""
        return self._models[0].name

    @property
    def is_rules(self) -> bool:
        """True if it is the built-in model, which reports the status of its answers."""
        return self.name == RULES

    @property
    def turn_tokens(self) -> int | None:
        """The number of tokens that one turn may use, if it is limited."""
        return self._models[0].options.turn_tokens

    async def load(self) -> None:
        """Load the first model's client. A failure is only logged: the first question raises it."""
        try:
            await self._models[0].load()
        except ModelCallError as error:
            self._log(self._models[0], error)

    async def ask(  # noqa: PLR0913  independent options
        self,
        messages: "Sequence[BaseMessage]",
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        on_text: OnText | None = None,
        on_chunk: OnChunk | None = None,
        on_discard: Callable[[], Awaitable[None]] | None = None,
        meter: "UsageMeter | None" = None,
        purpose: str = "answer",
        quotes_provider: bool = True,
    ) -> "AIMessage":
        """Return the reply of the first model that gives one. Cancellation closes the request.

        `tools` are specs from a Toolbox. Only built-in models get their `metadata`. `tool_choice`
        names a tool that must be called. `on_text` gets the text of an answer while it streams,
        `on_chunk` each piece of the reply. When a model fails, `on_discard` is called to discard
        what it streamed, and the next model is called. When all have failed, the models that may
        recover are called again after a pause, at most three times each. `meter` limits and counts
        the tokens; the built-in model is free. `purpose` names the call in the trace: `answer`,
        `check`, `plan` or `merge`. Without `quotes_provider`, an error's text has no words of a
        provider, which may repeat messages that the reader of the error may not see.

        Raises:
            LimitExceededError: a budget is used up.
            TreeLimitError: the limits of the request leave no tokens.
            ModelUnavailableError: no model gave a reply. The text names the reason and what to do.
            ModelOverflowError: the messages are too long for the first model.
        """
        errors: dict[str, ModelCallError] = {}
        remaining = list(self._models)
        backoff = Backoff(first_s=FIRST_PAUSE_S, limit_s=8 * FIRST_PAUSE_S)
        for rounds_left in reversed(range(_ROUNDS)):
            for client in remaining:
                specs = [dict(tool) for tool in tools]
                own_meter = meter if client.name != RULES else None
                if own_meter is not None:
                    await own_meter.check(client.name)
                try:
                    reply = await client.ask(
                        adapt_messages(messages, client.name),
                        tools=specs if client.name == RULES else _strip_metadata(specs),
                        tool_choice=tool_choice,
                        on_text=on_text,
                        on_chunk=on_chunk,
                        meter=own_meter,
                        purpose=purpose,
                    )
                except ModelCallError as error:
                    self._log(client, error)
                    errors[client.name] = error
                    if on_discard is not None:
                        await on_discard()
                else:
                    return reply
            remaining = [client for client in remaining if errors[client.name].is_transient]
            wait_s = min((errors[client.name].retry_after_s for client in remaining), default=0.0)
            if not remaining or not rounds_left or wait_s > _LONGEST_WAIT_S:
                break
            await asyncio.sleep(max(wait_s, backoff.next_s()))
        is_overflow = errors[self.name].kind == "context_overflow"
        failure = ModelOverflowError if is_overflow else ModelUnavailableError
        problems = {
            name: str(error) if quotes_provider else error.problem for name, error in errors.items()
        }
        raise failure(self.name, _describe_failures(self.name, problems))

    def _log(self, client: ModelClient, error: ModelCallError) -> None:
        logger.warning("model.failed", extra={"model": client.name, "kind": error.kind})


def open_model(choice: ModelChoice | str, *, examples: Iterable[str] = ()) -> Model:
    """Create a model. `examples` are questions that its agent can answer.

    Raises:
        ModelUnavailableError: no model has that name, or the package of its provider is missing.
    """
    if isinstance(choice, str):
        choice = ModelChoice(choice)
    names = dict.fromkeys((choice.name, *choice.fallbacks))
    return Model(
        [_open_client(name, choice.resolve_options(name), tuple(examples)) for name in names]
    )


def _open_client(name: str, options: ModelSettings, examples: tuple[str, ...]) -> ModelClient:
    if name == RULES:
        return ModelClient(RULES, ModelSettings(), partial(_build_rules_model, examples))
    provider, short = find_provider(name)
    if problem := provider.describe_missing_package():
        raise ModelUnavailableError(name, problem)
    return ModelClient(name, options, partial(provider.build_client, short, options), provider)


def _build_rules_model(examples: tuple[str, ...]) -> "BaseChatModel":
    # By its name, as the class of any other model: it loads LangChain, and stands above the core.
    module = importlib.import_module("trunkline.rules.model")
    model: BaseChatModel = module.RulesModel(examples=examples)
    return model


def _strip_metadata(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: tool[key] for key in tool if key != "metadata"} for tool in tools]


def _describe_failures(name: str, problems: Mapping[str, str]) -> str:
    fallbacks = [
        f"{fallback!r}: {problem}" for fallback, problem in problems.items() if fallback != name
    ]
    return "; ".join([problems[name], *fallbacks])
