"""Classifies the errors of model clients."""

from dataclasses import dataclass
from typing import Final

from trunkline.core.network import parse_retry_after

# LangChain's error classes without a status code, and the status they stand for.
_STATUSES: Final = {
    "ModelAuthenticationError": 401,
    "ModelPermissionDeniedError": 403,
    "ModelNotFoundError": 404,
    "ModelRateLimitError": 429,
    "ModelInvalidRequestError": 400,
    "ModelAPIError": 500,
}
# HTTP clients. Their errors mean that there is no connection, or that it broke.
_TRANSPORTS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp"})
_PROBLEM_CHARS: Final = 200


@dataclass(eq=False)
class ModelCallError(Exception):
    """One model did not answer."""

    kind: str
    """A value for spans, from a small set: an HTTP status, `timeout`, `connection`, …."""
    problem: str
    """The reason and what to do, for people."""
    detail: str = ""
    """The provider's own words about the request, which may repeat a part of the request."""
    is_transient: bool = False
    """True if the error may be temporary, so that the same model is called again."""
    retry_after_s: float = 0.0
    """The wait that the provider requested, in seconds."""

    def __str__(self) -> str:
        return f"{self.problem}: {self.detail}" if self.detail else self.problem


def classify_error(error: Exception, *, provider: str, key: str) -> ModelCallError:
    """Classify an error of a provider's client. `key` is the environment variable of its key.

    Callers of the mesh see the text, so it never holds the provider's address.
    """
    if isinstance(error, ModelCallError):
        return error
    names = {base.__name__ for base in type(error).__mro__}
    modules = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    if isinstance(error, TimeoutError) or names & {"ModelTimeoutError", "TimeoutException"}:
        return ModelCallError("timeout", f"{provider} did not answer in time; raise timeout_s")
    if "ContextOverflowError" in names:
        problem = "the conversation is too long for it; begin a new one, or ask more narrowly"
        return ModelCallError("context_overflow", problem)
    if status := _find_status(error, names):
        return _classify_status(status, error, provider=provider, key=key)
    if isinstance(error, OSError) or "ModelConnectionError" in names or modules & _TRANSPORTS:
        problem = f"{provider} can't be reached, or the connection broke; check base_url"
        return ModelCallError("connection", problem, is_transient=True)
    if isinstance(error, ValueError):
        problem = f"{provider} sent an invalid response; check base_url"
        return ModelCallError("malformed", problem, is_transient=True)
    problem = f"asking it failed with {type(error).__name__}; check its settings"
    return ModelCallError(type(error).__name__, problem)


def _classify_status(status: int, error: Exception, *, provider: str, key: str) -> ModelCallError:
    kind = str(status)
    if status in {401, 403}:
        check = f"check {key}" if key else "it requires a key: set api_key_env to its variable"
        return ModelCallError(kind, f"{provider} refused the key ({status}); {check}")
    if status == 404:
        return ModelCallError(
            kind, f"{provider} has no such model (404); check its name and base_url"
        )
    if status == 429:
        problem = f"the rate limit or quota at {provider} is used up (429); try again later"
        return ModelCallError(
            kind, problem, is_transient=True, retry_after_s=_parse_retry_after(error)
        )
    if status >= 500 or status == 408:
        problem = f"{provider} failed ({status}); try again later"
        return ModelCallError(
            kind, problem, is_transient=True, retry_after_s=_parse_retry_after(error)
        )
    # Only the provider knows why it rejected the request, and its text is about the request.
    detail = " ".join(str(getattr(error, "message", error)).split())[:_PROBLEM_CHARS]
    return ModelCallError(kind, f"{provider} refused the request ({status})", detail)


def _find_status(error: Exception, names: set[str]) -> int:
    for name in ("status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return next((_STATUSES[name] for name in names if name in _STATUSES), 0)


def _parse_retry_after(error: Exception) -> float:
    """Parse `Retry-After`, seconds or a date (RFC 9110 §10.2.3); 0 if it is missing."""
    value = ""
    cause: BaseException | None = error
    while cause is not None and not value:
        headers = getattr(getattr(cause, "response", None), "headers", None) or {}
        value = str(headers.get("retry-after", ""))
        cause = cause.__cause__
    return parse_retry_after(value)
