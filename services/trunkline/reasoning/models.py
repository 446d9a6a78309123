"""Opens chat models by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trunkline.errors import ModelUnavailableError

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel

RULES = "rules"


def open_model(name: str, *, examples: Sequence[str] = ()) -> "BaseChatModel":
    """Return a chat model; `examples` are questions that its agent can answer.

    Raises:
        ModelUnavailableError: there is no such model.
    """
    if name != RULES:
        raise ModelUnavailableError(name, f"unknown; {RULES!r} is the one that is built in")
    # Loads LangChain, so not before a model is wanted.
    from trunkline.reasoning.rules import RulesModel

    return RulesModel(examples=tuple(examples))
