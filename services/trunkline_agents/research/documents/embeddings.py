"""Search by meaning: a provider's model makes vectors of passages and of questions."""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from trunkline.errors import ConfigurationError, ModelUnavailableError
from trunkline.network import is_this_machine
from trunkline.settings import ModelSettings, describe_install
from trunkline_agents.research.documents.store import DocumentStore

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

# Passages in one request.
_BATCH_SIZE: Final = 64
_SETTING: Final = "research.embeddings"
# Two attempts together take less time than a tool call may.
_TIMEOUT_S: Final = 20.0
_RETRIES: Final = 1
# In today's models, passages below this cosine are unrelated to the question.
_MIN_COSINE: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Provider:
    """A provider of models. Its package is installed by the extra of the same name."""

    module: str
    embeddings: str
    """The name of LangChain's class."""
    key_env: str = ""
    """The usual variable for its key."""
    url_env: str = ""
    """The usual variable for its address."""


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "openai": _Provider(
        "langchain_openai", "OpenAIEmbeddings", "OPENAI_API_KEY", "OPENAI_BASE_URL"
    ),
    "ollama": _Provider("langchain_ollama", "OllamaEmbeddings", url_env="OLLAMA_HOST"),
    "google": _Provider("langchain_google_genai", "GoogleGenerativeAIEmbeddings", "GOOGLE_API_KEY"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingModel:
    """An embedding model, and its address."""

    name: str
    """`provider:name`."""
    base_url: str = ""
    """The address of the provider's API; empty: the provider's own address."""
    api_key: str = field(default="", repr=False)

    @classmethod
    def from_settings(
        cls, name: str, models: Mapping[str, ModelSettings]
    ) -> "EmbeddingModel | None":
        """Return the model `name` with the address and key that `models` and variables set.

        None if the name is empty.
        """
        if not name:
            return None
        provider = name.partition(":")[0]
        usual = _PROVIDERS.get(provider, _Provider("", ""))
        tables = [models[key] for key in (name, provider) if key in models]
        urls = (table.base_url for table in tables if table.base_url is not None)
        variables = (table.api_key_env for table in tables if table.api_key_env is not None)
        base_url = next(urls, _read_variable(usual.url_env))
        key = _read_variable(next(variables, usual.key_env))
        return cls(name=name, base_url=base_url, api_key=key)


class EmbeddingIndex:
    """The vectors of one model. Only one thread may use it at a time."""

    def __init__(self, name: str, embeddings: "Embeddings") -> None:
        self.name = name
        self._embeddings = embeddings
        self._revision = 0
        self._passages: list[int] = []
        self._matrix: Any = None

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts, normalized to length 1, as 32-bit floats.

        Raises:
            ModelUnavailableError: the model does not answer, or not with vectors.
        """
        vectors: list[bytes] = []
        for start in range(0, len(texts), _BATCH_SIZE):
            vectors += self._embed(list(texts[start : start + _BATCH_SIZE]))
        return vectors

    def search(self, store: DocumentStore, question: str, *, limit: int) -> list[int]:
        """Return the ids of the passages that are nearest to the question, nearest first.

        Raises:
            ModelUnavailableError: the model does not answer, or not with vectors.
        """
        import numpy as np

        self._load(store)
        if not self._passages:
            return []
        (embedded,) = self._embed([question])
        vector = np.frombuffer(embedded, dtype=np.float32)
        if vector.shape[0] != self._matrix.shape[1]:
            raise ModelUnavailableError(self.name, "its vectors have another length than before")
        cosines = self._matrix @ vector
        best = np.argsort(-cosines, kind="stable")[:limit]
        return [self._passages[row] for row in best if cosines[row] >= _MIN_COSINE]

    def _load(self, store: DocumentStore) -> None:
        import numpy as np

        revision = store.revision
        if revision == self._revision:
            return
        rows = store.query(
            "SELECT passage_id, vector FROM vectors WHERE model = ? ORDER BY passage_id", self.name
        )
        # A model that changed under the same name may have left vectors of another length.
        length = len(rows[-1][1]) if rows else 0
        rows = [row for row in rows if len(row[1]) == length]
        self._passages = [passage_id for passage_id, _ in rows]
        joined = b"".join(vector for _, vector in rows)
        self._matrix = np.frombuffer(joined, dtype=np.float32).reshape(len(rows), -1 if rows else 0)
        self._revision = revision

    def _embed(self, texts: list[str]) -> list[bytes]:
        import numpy as np

        try:
            vectors = np.asarray(self._embeddings.embed_documents(texts), dtype=np.float32)
            if (
                vectors.ndim != 2
                or vectors.shape[0] != len(texts)
                or not np.isfinite(vectors).all()
            ):
                raise ModelUnavailableError(self.name, "it answers with no vectors")
        except ModelUnavailableError:
            raise
        # Each provider's package has its own exceptions. Their texts may hold content.
        except Exception as error:
            raise ModelUnavailableError(self.name, _describe_error(error)) from error
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths == 0, 1, lengths)
        return [row.tobytes() for row in vectors]


def check_embedding_model(model: EmbeddingModel) -> None:
    """Check that a model can be used, without loading its provider's package.

    Raises:
        ConfigurationError: there is no such provider, or a package is not installed.
    """
    provider, _, name = model.name.partition(":")
    if provider not in _PROVIDERS or not name:
        names = ", ".join(f"{provider}:NAME" for provider in _PROVIDERS)
        raise ConfigurationError(_SETTING, f"{model.name!r} is not one of: {names}")
    modules = ("numpy", _PROVIDERS[provider].module)
    if not all(importlib.util.find_spec(module) for module in modules):
        problem = f"{model.name} needs {describe_install('embeddings', provider)}"
        raise ConfigurationError(_SETTING, problem)


def open_embedding_index(model: EmbeddingModel) -> EmbeddingIndex:
    """Open the index of a model. Loading the provider's package takes seconds.

    Raises:
        ConfigurationError: there is no such provider, or its package is not installed.
    """
    check_embedding_model(model)
    provider, _, name = model.name.partition(":")
    entry = _PROVIDERS[provider]
    try:
        make = getattr(importlib.import_module(entry.module), entry.embeddings)
        return EmbeddingIndex(model.name, make(**_build_arguments(provider, name, model)))
    # A provider's class may raise anything. The text may hold a key.
    except Exception as error:
        problem = f"{model.name} can't be used: {type(error).__name__}; is its key set?"
        raise ConfigurationError(_SETTING, problem) from error


def _build_arguments(provider: str, name: str, model: EmbeddingModel) -> dict[str, Any]:
    arguments: dict[str, Any] = {"model": name}
    if model.base_url:
        arguments["base_url"] = model.base_url
    if provider == "openai":
        import httpx

        host = urlsplit(model.base_url).hostname or ""
        arguments |= {
            # Counting tokens would download a table, and passages are short enough.
            "check_embedding_ctx_length": False,
            "timeout": _TIMEOUT_S,
            "max_retries": _RETRIES,
            "chunk_size": _BATCH_SIZE,
            # A proxy from the environment is for other machines, not for this one.
            "http_client": httpx.Client(trust_env=not is_this_machine(host)),
            # Compatible servers may need no key, but the package requires one.
            "api_key": model.api_key or ("none" if model.base_url else None),
        }
    elif model.api_key:
        arguments["google_api_key" if provider == "google" else "api_key"] = model.api_key
    return arguments


def _read_variable(name: str) -> str:
    return os.environ.get(name, "") if name else ""


def _describe_error(error: Exception) -> str:
    """Describe an error without content: its class, and the HTTP status."""
    status = getattr(error, "status_code", None)
    return f"{type(error).__name__}" + (f", HTTP {status}" if status else "")
