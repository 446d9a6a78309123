"""Models by `provider:name`: their limits, what is done when one fails, and what their spans say.

    model = open_model("openai:gpt-5", fallbacks=("anthropic:claude-5", "rules"))
    reply = await model.ask(messages, tools=specs, say=stream_it, unsay=take_it_back)

Importing this loads no LangChain; a provider's package is loaded when its model is asked first.
"""

from trunkline.reasoning.models.model import RULES, Model, ModelChoice, open_model
from trunkline.reasoning.models.replies import count_tokens, is_truncated, truncation_note

__all__ = [
    "RULES",
    "Model",
    "ModelChoice",
    "count_tokens",
    "is_truncated",
    "open_model",
    "truncation_note",
]
