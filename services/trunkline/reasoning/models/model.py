"""A model and those that are asked when it can't answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.client.backoff import Backoff
from trunkline.errors import ModelOverflowError, ModelUnavailableError
from trunkline.reasoning.models.asking import Hear, OneModel, Say
from trunkline.reasoning.models.choice import DEFAULTS, RULES, ModelChoice
from trunkline.reasoning.models.providers import find_provider
from trunkline.reasoning.models.replies import of_any_provider
from trunkline.reasoning.models.trouble import ModelTrouble
from trunkline.settings import ModelSettings

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

logger = logging.getLogger(__name__)

_ROUNDS: Final = 3
"""How often all models that may yet answer are asked."""
FIRST_PAUSE_S = 0.5
"""Between two rounds; the next pause is twice as long."""
_LONGEST_WAIT_S: Final = 15.0
"""A provider that wants a longer pause is not waited for."""


class Model:
    """What an agent reasons with. One serves any number of turns at once."""

    def __init__(self, models: Sequence[OneModel]) -> None:
        self._models = tuple(models)

    @classmethod
    def of(cls, chat: "BaseChatModel", *, name: str = "scripted") -> Self:
        """Return a chat model of LangChain's as a model, within the usual limits of time."""
        return cls([OneModel(name, DEFAULTS, lambda: chat)])

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
        except ModelTrouble as trouble:
            self._log(self._models[0], trouble)

    async def ask(
        self,
        messages: "Sequence[BaseMessage]",
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | None = None,
        say: Say | None = None,
        hear: Hear | None = None,
        unsay: Callable[[], Awaitable[None]] | None = None,
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
        troubles: dict[str, ModelTrouble] = {}
        left = list(self._models)
        backoff = Backoff(first_s=FIRST_PAUSE_S, limit_s=8 * FIRST_PAUSE_S)
        for again in reversed(range(_ROUNDS)):
            for one in left:
                shown = [dict(tool) for tool in tools]
                try:
                    return await one.ask(
                        of_any_provider(messages, one.name),
                        tools=shown if one.name == RULES else _plain(shown),
                        tool_choice=tool_choice,
                        say=say,
                        hear=hear,
                    )
                except ModelTrouble as trouble:
                    self._log(one, trouble)
                    troubles[one.name] = trouble
                    if unsay is not None:
                        await unsay()
            left = [one for one in left if troubles[one.name].is_passing]
            wait_s = min((troubles[one.name].retry_after_s for one in left), default=0.0)
            if not left or not again or wait_s > _LONGEST_WAIT_S:
                break
            await asyncio.sleep(max(wait_s, backoff.next_s()))
        is_overflow = troubles[self.name].kind == "context_overflow"
        failure = ModelOverflowError if is_overflow else ModelUnavailableError
        raise failure(self.name, _said(self.name, troubles))

    def _log(self, one: OneModel, trouble: ModelTrouble) -> None:
        logger.warning("model.failed", extra={"model": one.name, "kind": trouble.kind})


def open_model(choice: ModelChoice | str, *, examples: Iterable[str] = ()) -> Model:
    """Return a model; `examples` are questions that its agent can answer.

    Raises:
        ModelUnavailableError: there is no model of such a name.
    """
    if isinstance(choice, str):
        choice = ModelChoice(choice)
    names = dict.fromkeys((choice.name, *choice.fallbacks))
    return Model([_open_one(name, choice.options(name), tuple(examples)) for name in names])


def _open_one(name: str, options: ModelSettings, examples: tuple[str, ...]) -> OneModel:
    if name == RULES:
        return OneModel(RULES, ModelSettings(), partial(_make_rules, examples))
    provider, short = find_provider(name)
    return OneModel(name, options, partial(provider.make, short, options), provider)


def _make_rules(examples: tuple[str, ...]) -> "BaseChatModel":
    # Loads LangChain, so not before a model is wanted.
    from trunkline.reasoning.models.rules import RulesModel

    return RulesModel(examples=examples)


def _plain(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: tool[key] for key in tool if key != "metadata"} for tool in tools]


def _said(name: str, troubles: Mapping[str, ModelTrouble]) -> str:
    first = troubles[name].problem
    others = [f"{other!r}: {one.problem}" for other, one in troubles.items() if other != name]
    return "; ".join([first, *others])
