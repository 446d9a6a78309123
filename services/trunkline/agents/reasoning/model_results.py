"""Objects of pydantic models from an agent's model: `TaskContext.ask_model`."""

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from trunkline.agents.reasoning.models import (
    RULES,
    Model,
    ModelChoice,
    UnusableReplyError,
    ask_for_form,
    open_model,
)
from trunkline.agents.reasoning.toolbox import build_tool_spec
from trunkline.errors import ModelUnavailableError
from trunkline.tasks.calls import ResultT
from trunkline.tasks.turn_runtime import TurnRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, BaseMessage

logger = logging.getLogger(__name__)

GIVE_RESULT: Final = "give_result"
"""The tool by which a model gives the object."""


@dataclass(frozen=True, slots=True)
class ModelResults:
    """Asks the model of an agent for objects."""

    model: ModelChoice | Model
    """An open model, or the names of a model and its fallbacks, which each call opens."""

    async def ask(
        self,
        turn: TurnRuntime,
        prompt: str,
        result: type[ResultT],
        *,
        instructions: str,
        purpose: str,
    ) -> ResultT | None:
        """Ask for an object. Returns None if the built-in model is to answer: it does not reason.

        Raises:
            As `TaskContext.ask_model`.
        """
        choice = self.model
        if isinstance(choice, Model):
            return await self._ask(choice, turn, prompt, result, instructions, purpose)
        if choice.name == RULES:
            return None
        fallbacks = tuple(name for name in choice.fallbacks if name != RULES)
        try:
            model = open_model(replace(choice, fallbacks=fallbacks))
            return await self._ask(model, turn, prompt, result, instructions, purpose)
        except ModelUnavailableError as error:
            if RULES not in choice.fallbacks:
                raise
            logger.warning("model.replaced_by_rules", extra={"model": error.model})
            return None

    async def _ask(
        self,
        model: Model,
        turn: TurnRuntime,
        prompt: str,
        result: type[ResultT],
        instructions: str,
        purpose: str,
    ) -> ResultT:
        from langchain_core.messages import HumanMessage, SystemMessage

        description = " ".join((result.__doc__ or "Give the result.").split())
        tool = build_tool_spec(GIVE_RESULT, description, result.model_json_schema())

        async def ask(messages: "Sequence[BaseMessage]") -> "AIMessage":
            return await model.ask(
                messages,
                tools=[tool],
                tool_choice=GIVE_RESULT,
                meter=turn.meter,
                purpose=purpose,
            )

        messages: list[BaseMessage] = [SystemMessage(instructions)] if instructions else []
        messages.append(HumanMessage(prompt))
        try:
            return await ask_for_form(
                ask,
                messages,
                lambda reply: _read_result(reply, result),
                tool=GIVE_RESULT,
                complaint="That does not fit",
            )
        except UnusableReplyError as error:
            raise ModelUnavailableError(model.name, f"its answers did not fit: {error}") from None


def _read_result(reply: "AIMessage", result: type[ResultT]) -> ResultT:
    for call in reply.tool_calls:
        if call["name"] != GIVE_RESULT:
            continue
        try:
            return result.model_validate(call["args"])
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(map(str, first["loc"])) or "the object"
            raise UnusableReplyError(f"{path}: {first['msg']}") from None
    raise UnusableReplyError(f"{GIVE_RESULT} was not called")
