"""Models by `provider:name`, with limits, retries, fallbacks and spans.

    model = open_model("openai:gpt-5", fallbacks=("anthropic:claude-5", "rules"))
    reply = await model.ask(messages, tools=specs, on_text=stream, on_discard=discard)

Importing this package does not load LangChain. A provider's package loads at its first call.
"""

from trunkline.agents.reasoning.models.form import UnusableReplyError, ask_for_form
from trunkline.agents.reasoning.models.model import RULES, Model, ModelChoice, open_model
from trunkline.agents.reasoning.models.model_client import OnText
from trunkline.agents.reasoning.models.replies import (
    count_tokens,
    is_truncated,
    measure_tokens,
    truncation_note,
)

__all__ = [
    "RULES",
    "Model",
    "ModelChoice",
    "OnText",
    "UnusableReplyError",
    "ask_for_form",
    "count_tokens",
    "is_truncated",
    "measure_tokens",
    "open_model",
    "truncation_note",
]
