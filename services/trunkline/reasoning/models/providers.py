"""Providers of models: their LangChain packages, their keys, and how their clients are set up."""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trunkline.errors import ModelUnavailableError
from trunkline.reasoning.models.trouble import ModelTrouble
from trunkline.settings import ModelSettings

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel

# What a client wants as a key where none is needed.
_NO_KEY: Final = "none"


@dataclass(frozen=True, slots=True)
class Provider:
    """Who serves models, and the LangChain class that asks them."""

    name: str
    """In `provider:name`, and of the extra that installs its package."""
    module: str
    cls: str
    traced_as: str
    """In spans, by the GenAI conventions."""
    keys: tuple[str, ...]
    """Variables that hold its key; none: it needs none."""
    bases: tuple[str, ...]
    """Variables that say where it is; its client reads them by itself."""
    set_up: Callable[[ModelSettings], Mapping[str, Any]]
    """What its class calls our options. Retrying is ours, so each client's own is turned off."""

    def key_variable(self, options: ModelSettings) -> str:
        """Return the variable that holds the key: one that is set, if any is; empty: no key."""
        if options.api_key_env is not None:
            return options.api_key_env
        return next((name for name in self.keys if os.environ.get(name)), "".join(self.keys[:1]))

    def make(self, name: str, options: ModelSettings) -> "BaseChatModel":
        """Load the package and return a model's client. Takes a second or two.

        Raises:
            ModelTrouble: the package or the key is missing, or an option is wrong.
        """
        arguments: dict[str, Any] = {"model": name, **self.set_up(options)}
        if self.keys:
            arguments["api_key"] = self._key(options)
        if options.base_url:
            arguments["base_url"] = options.base_url
        if options.temperature is not None:
            arguments["temperature"] = options.temperature
        try:
            made = getattr(importlib.import_module(self.module), self.cls)
        except ImportError:
            package = self.module.replace("_", "-")
            problem = f"it needs {package}: install trunkline[{self.name}]"
            raise ModelTrouble("not_installed", problem) from None
        try:
            model: BaseChatModel = made(**arguments | dict(options.extra))
        except (ValueError, TypeError) as error:
            # A ValidationError of pydantic's is a ValueError, and quotes what it was given.
            problem = (
                f"its options are wrong ({type(error).__name__}); check [models] and its extra"
            )
            raise ModelTrouble("options", problem) from None
        return model

    def _key(self, options: ModelSettings) -> str:
        variable = self.key_variable(options)
        if key := os.environ.get(variable, "") if variable else _NO_KEY:
            return key
        is_elsewhere = options.base_url or any(os.environ.get(name) for name in self.bases)
        if is_elsewhere and options.api_key_env is None:
            # Servers of one's own rarely ask for one; those that do say so.
            return _NO_KEY
        problem = f"there is no key: set {variable}, or name another variable by api_key_env"
        raise ModelTrouble("no_key", problem)


def _openai(options: ModelSettings) -> Mapping[str, Any]:
    # Time limits are ours: its own between two chunks would come first.
    limits = {"timeout": options.timeout_s, "stream_chunk_timeout": None}
    return {**limits, "max_retries": 0, "max_tokens": options.max_tokens, "stream_usage": True}


def _anthropic(options: ModelSettings) -> Mapping[str, Any]:
    timeout_s, max_tokens = options.timeout_s, options.max_tokens
    return {"timeout": timeout_s, "max_retries": 0, "max_tokens": max_tokens}


def _google(options: ModelSettings) -> Mapping[str, Any]:
    # Of its client, 1 means: not again.
    timeout_s, max_tokens = options.timeout_s, options.max_tokens
    return {"timeout": timeout_s, "max_retries": 1, "max_output_tokens": max_tokens}


def _ollama(options: ModelSettings) -> Mapping[str, Any]:
    arguments = {"timeout": options.timeout_s}
    return {"client_kwargs": arguments, "num_predict": options.max_tokens}


_ALL: Final = (
    Provider(
        name="openai",
        module="langchain_openai",
        cls="ChatOpenAI",
        traced_as="openai",
        keys=("OPENAI_API_KEY",),
        bases=("OPENAI_API_BASE", "OPENAI_BASE_URL"),
        set_up=_openai,
    ),
    Provider(
        name="anthropic",
        module="langchain_anthropic",
        cls="ChatAnthropic",
        traced_as="anthropic",
        keys=("ANTHROPIC_API_KEY",),
        bases=("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
        set_up=_anthropic,
    ),
    Provider(
        name="google",
        module="langchain_google_genai",
        cls="ChatGoogleGenerativeAI",
        traced_as="gcp.gemini",
        keys=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        bases=(),
        set_up=_google,
    ),
    Provider(
        name="ollama",
        module="langchain_ollama",
        cls="ChatOllama",
        traced_as="ollama",
        keys=(),
        bases=("OLLAMA_HOST",),
        set_up=_ollama,
    ),
)
PROVIDERS: Final[Mapping[str, Provider]] = {one.name: one for one in _ALL}


def find_provider(model: str) -> tuple[Provider, str]:
    """Return who serves a model, and what it is called there.

    Raises:
        ModelUnavailableError: the name is no `provider:name`, or nobody knows the provider.
    """
    provider, _, name = model.partition(":")
    if provider not in PROVIDERS or not name:
        known = ", ".join(f"{one}:NAME" for one in PROVIDERS)
        raise ModelUnavailableError(model, f"there is no such model; write rules, or {known}")
    return PROVIDERS[provider], name
