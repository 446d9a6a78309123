"""Search by meaning: the vectors of passages and of questions."""

from collections.abc import Sequence
from typing import Any

from trunkline.embeddings import TextEncoder
from trunkline.errors import ModelUnavailableError
from trunkline_agents.research.documents.store import DocumentStore


class VectorIndex:
    """The vectors of one model. Only one thread may use it at a time."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._revision = 0
        self._passages: list[int] = []
        self._matrix: Any = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts, normalized to length 1, as 32-bit floats.

        Raises:
            ModelUnavailableError: the model does not answer, or not with vectors.
        """
        return [row.tobytes() for row in self._encoder.encode(texts)]

    def search(self, store: DocumentStore, question: str, *, limit: int) -> list[int]:
        """Return the ids of the passages that are nearest to the question, nearest first.

        Raises:
            ModelUnavailableError: the model does not answer, or not with vectors.
        """
        (vector,) = self._encoder.encode([question])
        nearest = store.find_nearest(self.name, vector.tolist(), limit=limit)
        if nearest is None:
            nearest = self._find_nearest(store, vector, limit=limit)
        return [passage_id for passage_id, cosine in nearest if cosine >= self._encoder.min_cosine]

    def _find_nearest(
        self,
        store: DocumentStore,
        vector: Any,  # noqa: ANN401  NumPy's array
        *,
        limit: int,
    ) -> list[tuple[int, float]]:
        import numpy as np

        self._load(store)
        if not self._passages:
            return []
        if vector.shape[0] != self._matrix.shape[1]:
            raise ModelUnavailableError(self.name, "its vectors have another length than before")
        cosines = self._matrix @ vector
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [(self._passages[row], float(cosines[row])) for row in best]

    def _load(self, store: DocumentStore) -> None:
        import numpy as np

        revision = store.revision
        if revision == self._revision:
            return
        rows = store.list_vectors(self.name)
        # A model that changed under the same name may have left vectors of another length.
        length = len(rows[-1][1]) if rows else 0
        rows = [row for row in rows if len(row[1]) == length]
        self._passages = [passage_id for passage_id, _ in rows]
        joined = b"".join(vector for _, vector in rows)
        self._matrix = np.frombuffer(joined, dtype=np.float32).reshape(len(rows), -1 if rows else 0)
        self._revision = revision
