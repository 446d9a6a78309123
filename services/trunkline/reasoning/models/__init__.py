"""Models by `provider:name`: their limits, what is done when one fails, and what their spans say.

    model = open_model("openai:gpt-5", fallbacks=("anthropic:claude-5", "rules"))
    reply = await model.ask(messages, tools=specs, say=stream_it, unsay=take_it_back)

Importing this loads no LangChain; a provider's package is loaded when its model is asked first.
"""

from trunkline.reasoning.models.choice import RULES, ModelChoice
from trunkline.reasoning.models.model import Model, open_model
from trunkline.reasoning.models.replies import is_cut_short, note_of, tokens_of

__all__ = ["RULES", "Model", "ModelChoice", "is_cut_short", "note_of", "open_model", "tokens_of"]
