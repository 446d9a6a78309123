"""Routes a request to the agent whose example is nearest in meaning."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from trunkline.core.printable import to_plain_line
from trunkline.embeddings import EmbeddingModel, TextEncoder
from trunkline.errors import ConfigurationError, ModelUnavailableError
from trunkline.supervisor.roster import Roster
from trunkline.v1 import event_pb2

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

_REQUEST_CHARS: Final = 2000
_EXAMPLE_CHARS: Final = 200
# After a failure of the model, requests don't wait for it for this long.
_RETRY_AFTER_S: Final = 30.0


class ExampleIndex:
    """The vectors of the examples on the cards of a mesh."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._model = model
        self._encoder: TextEncoder | None = None
        self._vectors: WeakKeyDictionary[Roster, NDArray[np.float32]] = WeakKeyDictionary()
        self._retry_at = 0.0
        # The encoder serves one thread at a time.
        self._turn = asyncio.Lock()

    async def route(self, request: str, roster: Roster) -> event_pb2.RouteDecided | None:
        """Return the route to the agent with the nearest example.

        Returns None if no example is near, or if the model can't be used; the log says why.
        """
        async with self._turn:
            if time.monotonic() < self._retry_at:
                return None
            try:
                return await asyncio.to_thread(self._route, request[:_REQUEST_CHARS], roster)
            except (ConfigurationError, ModelUnavailableError) as error:
                self._retry_at = time.monotonic() + _RETRY_AFTER_S
                extra = {"problem": str(error)}
                logger.warning("supervisor.embeddings_unavailable", extra=extra)
                return None

    def _route(self, request: str, roster: Roster) -> event_pb2.RouteDecided | None:
        examples = _list_examples(roster)
        if not examples:
            return None
        if self._encoder is None:
            self._encoder = self._model.open()
        vectors = self._vectors.get(roster)
        if vectors is None:
            vectors = self._encoder.encode([example for _, example in examples])
            self._vectors[roster] = vectors
        (vector,) = self._encoder.encode([request])
        cosines = vectors @ vector
        nearest = int(cosines.argmax())
        cosine = float(cosines[nearest])
        if cosine < self._encoder.min_cosine:
            return None
        agent, example = examples[nearest]
        reasons = [f"its example {to_plain_line(example, _EXAMPLE_CHARS)!r} is near in meaning"]
        confidence = round(cosine, 2)
        score = event_pb2.AgentScore(agent=agent, confidence=confidence, reasons=reasons)
        return event_pb2.RouteDecided(
            agent=agent, confidence=confidence, reasons=reasons, scores=[score]
        )


def _list_examples(roster: Roster) -> list[tuple[str, str]]:
    """Return the agents with their examples."""
    return [
        (name, example)
        for name, card in roster.cards.items()
        for skill in card.skills
        for example in skill.examples
    ]
