"""Model providers: their LangChain packages, API keys and client options."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trunkline.agents.reasoning.models.model_errors import ModelCallError
from trunkline.core.settings import ModelSettings, describe_install
from trunkline.errors import ModelUnavailableError
from trunkline.observe import telemetry

if TYPE_CHECKING:
    import httpx
    from langchain_core.language_models.chat_models import BaseChatModel

# A placeholder, because clients require a key even for servers that need none.
_NO_KEY: Final = "none"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models, and the LangChain class of its client."""

    name: str
    """The name in `provider:name`, and of the extra that installs its package."""
    module: str
    class_name: str
    trace_name: str
    """The name in spans, from the GenAI semantic conventions."""
    key_variables: tuple[str, ...]
    """Environment variables for its key. A provider without them needs no key."""
    url_variables: tuple[str, ...]
    """Environment variables for its address, which its client reads itself."""
    client_options: Callable[[ModelSettings], Mapping[str, Any]]
    """Converts our options to the client's arguments. Turns off its retries, because we retry."""
    takes_headers: bool = False
    """True if a call of its client takes `extra_headers`."""

    def key_variable(self, options: ModelSettings) -> str:
        """Return the variable of the key, preferably a variable that is set; "" without a key."""
        if options.api_key_env is not None:
            return options.api_key_env
        return next(
            (name for name in self.key_variables if os.environ.get(name)),
            "".join(self.key_variables[:1]),
        )

    def describe_missing_package(self) -> str:
        """Return what to install for its models, or "" if nothing is missing."""
        if importlib.util.find_spec(self.module) is not None:
            return ""
        package = self.module.replace("_", "-")
        return f"it needs {package}: run {describe_install(self.name)}"

    def build_client(self, name: str, options: ModelSettings) -> "BaseChatModel":
        """Load the package and create a model's client. Takes a second or two.

        Raises:
            ModelCallError: the package or the key is missing, or an option is wrong.
        """
        arguments: dict[str, Any] = {"model": name, **self.client_options(options)}
        if problem := self.describe_missing_key(options):
            raise ModelCallError("no_key", problem)
        if self.key_variables:
            arguments["api_key"] = self._find_key(options)
        if options.base_url:
            arguments["base_url"] = options.base_url
        if options.temperature is not None:
            arguments["temperature"] = options.temperature
        try:
            client_class = getattr(importlib.import_module(self.module), self.class_name)
        except ImportError as error:
            problem = self.describe_missing_package() or f"{self.module} can't be loaded"
            raise ModelCallError("not_installed", problem) from error
        try:
            model: BaseChatModel = client_class(**arguments | dict(options.extra))
        except (ValueError, TypeError) as error:
            # A pydantic ValidationError is a ValueError, and its text quotes the input.
            problem = (
                f"its options are wrong ({type(error).__name__}); check [models] and its extra"
            )
            raise ModelCallError("options", problem) from None
        return model

    def describe_missing_key(self, options: ModelSettings) -> str:
        """Return the variable that has to hold a key, or "" if a key exists or is not needed."""
        if not self.key_variables or self._find_key(options):
            return ""
        variable = self.key_variable(options)
        return f"there is no key: set {variable}, or name another variable by api_key_env"

    def _find_key(self, options: ModelSettings) -> str:
        """Return the key, or "" if it is missing."""
        variable = self.key_variable(options)
        if key := os.environ.get(variable, "") if variable else _NO_KEY:
            return key
        has_custom_url = options.base_url or any(
            os.environ.get(name) for name in self.url_variables
        )
        # Self-hosted servers rarely need a key. One that does rejects the call.
        return _NO_KEY if has_custom_url and options.api_key_env is None else ""


def _openai_options(options: ModelSettings) -> Mapping[str, Any]:
    # The client's own timeout between two chunks would fire before ours.
    limits = {"timeout": options.timeout_s, "stream_chunk_timeout": None}
    return {**limits, "max_retries": 0, "max_tokens": options.max_tokens, "stream_usage": True}


def _anthropic_options(options: ModelSettings) -> Mapping[str, Any]:
    timeout_s, max_tokens = options.timeout_s, options.max_tokens
    return {"timeout": timeout_s, "max_retries": 0, "max_tokens": max_tokens}


def _google_options(options: ModelSettings) -> Mapping[str, Any]:
    # For this client, 1 means a single attempt.
    timeout_s, max_tokens = options.timeout_s, options.max_tokens
    return {"timeout": timeout_s, "max_retries": 1, "max_output_tokens": max_tokens}


def _ollama_options(options: ModelSettings) -> Mapping[str, Any]:
    arguments: dict[str, Any] = {
        "client_kwargs": {"timeout": options.timeout_s},
        "num_predict": options.max_tokens,
    }
    if options.traceparent is not False:
        # A call of this client takes no headers.
        arguments["async_client_kwargs"] = {"event_hooks": {"request": [_add_traceparent]}}
    return arguments


async def _add_traceparent(request: "httpx.Request") -> None:
    request.headers.update(telemetry.inject())


_SUPPORTED: Final = (
    Provider(
        name="openai",
        module="langchain_openai",
        class_name="ChatOpenAI",
        trace_name="openai",
        key_variables=("OPENAI_API_KEY",),
        url_variables=("OPENAI_API_BASE", "OPENAI_BASE_URL"),
        client_options=_openai_options,
        takes_headers=True,
    ),
    Provider(
        name="anthropic",
        module="langchain_anthropic",
        class_name="ChatAnthropic",
        trace_name="anthropic",
        key_variables=("ANTHROPIC_API_KEY",),
        url_variables=("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
        # Its client starts a span, and sends the trace context of that.
        client_options=_anthropic_options,
    ),
    Provider(
        name="google",
        module="langchain_google_genai",
        class_name="ChatGoogleGenerativeAI",
        trace_name="gcp.gemini",
        key_variables=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
        url_variables=(),
        client_options=_google_options,
    ),
    Provider(
        name="ollama",
        module="langchain_ollama",
        class_name="ChatOllama",
        trace_name="ollama",
        key_variables=(),
        url_variables=("OLLAMA_HOST",),
        client_options=_ollama_options,
    ),
)
PROVIDERS: Final[Mapping[str, Provider]] = {provider.name: provider for provider in _SUPPORTED}


def find_provider(model: str) -> tuple[Provider, str]:
    """Return the provider of a model, and the model's name there.

    Raises:
        ModelUnavailableError: the name is not `provider:name`, or the provider is unknown.
    """
    provider, _, name = model.partition(":")
    if provider not in PROVIDERS or not name:
        choices = ", ".join(f"{key}:NAME" for key in PROVIDERS)
        raise ModelUnavailableError(model, f"there is no such model; write rules, or {choices}")
    return PROVIDERS[provider], name
