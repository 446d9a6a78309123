"""Which model an agent has, by the settings, and what one reply of a model may take."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.client.backoff import Backoff
from trunkline.errors import ModelOverflowError, ModelUnavailableError
from trunkline.reasoning.models.model_client import ModelClient, OnChunk, OnText
from trunkline.reasoning.models.model_errors import ModelCallError
from trunkline.reasoning.models.providers import find_provider
from trunkline.reasoning.models.replies import adapt_messages
from trunkline.settings import AgentSettings, ModelSettings, Settings

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage


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
    def for_agent(cls, settings: Settings, agent: str) -> Self:
        """Return what an agent reasons with."""
        own = settings.agent_options.get(agent, AgentSettings())
        fallbacks = own.fallbacks or settings.fallbacks
        return cls(own.model or settings.model, fallbacks, settings.models, own.check)

    @classmethod
    def for_planner(cls, settings: Settings, own: str = "") -> Self:
        """Return what a supervisor plans with; `own` is its own setting, if it has one."""
        name = own or settings.planner_model or settings.model
        return cls(name, settings.fallbacks, settings.models)

    def resolve_options(self, name: str) -> ModelSettings:
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


logger = logging.getLogger(__name__)

_ROUNDS: Final = 3
"""How often all models that may yet answer are asked."""
FIRST_PAUSE_S = 0.5
"""Between two rounds; the next pause is twice as long."""
_LONGEST_WAIT_S: Final = 15.0
"""A provider that wants a longer pause is not waited for."""


class Model:
    """What an agent reasons with. One serves any number of turns at once."""

    def __init__(self, models: Sequence[ModelClient]) -> None:
        self._models = tuple(models)

    @classmethod
    def from_chat_model(cls, chat: "BaseChatModel", *, name: str = "scripted") -> Self:
        """Return a chat model of LangChain's as a model, within the usual limits of time."""
        return cls([ModelClient(name, DEFAULTS, lambda: chat)])

    @property
    def name(self) -> str:
        """The first one's: the others are asked only when it can't answer."""
        return self._models[0].name

    @property
    def is_rules(self) -> bool:
        """Whether it is the built-in one, which judges its answers itself."""
        return self.name == RULES

    @property
    def turn_tokens(self) -> int | None:
        """Tokens that one turn may take; None: any number."""
        return self._models[0].options.turn_tokens

    async def load(self) -> None:
        """Load what its client needs, as the first question would. What fails, fails then."""
        try:
            await self._models[0].load()
        except ModelCallError as trouble:
            self._log(self._models[0], trouble)

    async def ask(
        self,
        messages: "Sequence[BaseMessage]",
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        on_text: OnText | None = None,
        on_chunk: OnChunk | None = None,
        on_discard: Callable[[], Awaitable[None]] | None = None,
    ) -> "AIMessage":
        """Return the reply of the first model that gives one; canceled, it closes its request.

        `tools` are specs as a Toolbox gives them; what they hold under `metadata` only models of
        ours are shown. `tool_choice` names one that has to be called. `say` gets an answer's text
        while it comes, `hear` each piece of the reply as it is. When a model fails, `unsay` is
        called, to take back what this reply had said, and the next model is asked; when all have
        failed, those that may yet answer are asked again after a pause, thrice in all.

        Raises:
            ModelUnavailableError: none gave a reply; it says why not, and what to do.
            ModelOverflowError: one of those, since what was said is too long for it.
        """
        troubles: dict[str, ModelCallError] = {}
        left = list(self._models)
        backoff = Backoff(first_s=FIRST_PAUSE_S, limit_s=8 * FIRST_PAUSE_S)
        for again in reversed(range(_ROUNDS)):
            for one in left:
                shown = [dict(tool) for tool in tools]
                try:
                    return await one.ask(
                        adapt_messages(messages, one.name),
                        tools=shown if one.name == RULES else _plain(shown),
                        tool_choice=tool_choice,
                        on_text=on_text,
                        on_chunk=on_chunk,
                    )
                except ModelCallError as trouble:
                    self._log(one, trouble)
                    troubles[one.name] = trouble
                    if on_discard is not None:
                        await on_discard()
            left = [one for one in left if troubles[one.name].is_transient]
            wait_s = min((troubles[one.name].retry_after_s for one in left), default=0.0)
            if not left or not again or wait_s > _LONGEST_WAIT_S:
                break
            await asyncio.sleep(max(wait_s, backoff.next_s()))
        is_overflow = troubles[self.name].kind == "context_overflow"
        failure = ModelOverflowError if is_overflow else ModelUnavailableError
        raise failure(self.name, _said(self.name, troubles))

    def _log(self, one: ModelClient, trouble: ModelCallError) -> None:
        logger.warning("model.failed", extra={"model": one.name, "kind": trouble.kind})


def open_model(choice: ModelChoice | str, *, examples: Iterable[str] = ()) -> Model:
    """Return a model; `examples` are questions that its agent can answer.

    Raises:
        ModelUnavailableError: there is no model of such a name.
    """
    if isinstance(choice, str):
        choice = ModelChoice(choice)
    names = dict.fromkeys((choice.name, *choice.fallbacks))
    return Model([_open_one(name, choice.resolve_options(name), tuple(examples)) for name in names])


def _open_one(name: str, options: ModelSettings, examples: tuple[str, ...]) -> ModelClient:
    if name == RULES:
        return ModelClient(RULES, ModelSettings(), partial(_make_rules, examples))
    provider, short = find_provider(name)
    return ModelClient(name, options, partial(provider.build_client, short, options), provider)


def _make_rules(examples: tuple[str, ...]) -> "BaseChatModel":
    # Loads LangChain, so not before a model is wanted.
    from trunkline.reasoning.models.rules import RulesModel

    return RulesModel(examples=examples)


def _plain(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: tool[key] for key in tool if key != "metadata"} for tool in tools]


def _said(name: str, troubles: Mapping[str, ModelCallError]) -> str:
    first = troubles[name].problem
    others = [f"{other!r}: {one.problem}" for other, one in troubles.items() if other != name]
    return "; ".join([first, *others])
