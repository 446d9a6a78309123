"""Failures of a command: A2A's error name or the standard's own code, exit code, and a hint."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Final

from trunkline.a2a_client.errors import RpcError, ServerBusyError
from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
)


class StandardExit(IntEnum):
    """Exit codes: they report whether the command did its job, not how the task ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNAUTHENTICATED = 4
    TIMEOUT = 5


class LocalCode(StrEnum):
    """Codes of failures that A2A has no error for."""

    USAGE = "A2ACLI_ERR_USAGE"
    CARD_NOT_FOUND = "A2ACLI_ERR_CARD_NOT_FOUND"
    CARD_INVALID = "A2ACLI_ERR_CARD_INVALID"
    UNREACHABLE = "A2ACLI_ERR_UNREACHABLE"
    CREDENTIALS_MISSING = "A2ACLI_ERR_CREDENTIALS_MISSING"
    AUTH_FAILED = "A2ACLI_ERR_AUTH_FAILED"
    TIMEOUT = "A2ACLI_ERR_TIMEOUT"
    INTERNAL = "A2ACLI_ERR_INTERNAL"


_EXITS: Final[Mapping[str, StandardExit]] = {
    LocalCode.USAGE: StandardExit.USAGE,
    LocalCode.CARD_NOT_FOUND: StandardExit.UNREACHABLE,
    LocalCode.UNREACHABLE: StandardExit.UNREACHABLE,
    LocalCode.CREDENTIALS_MISSING: StandardExit.UNAUTHENTICATED,
    LocalCode.AUTH_FAILED: StandardExit.UNAUTHENTICATED,
    LocalCode.TIMEOUT: StandardExit.TIMEOUT,
}
# A2A's names of errors, by the reason that they have in all bindings.
_A2A_NAMES: Final[Mapping[str, str]] = {
    "TASK_NOT_FOUND": "TaskNotFoundError",
    "TASK_NOT_CANCELABLE": "TaskNotCancelableError",
    "PUSH_NOTIFICATION_NOT_SUPPORTED": "PushNotificationNotSupportedError",
    "UNSUPPORTED_OPERATION": "UnsupportedOperationError",
    "CONTENT_TYPE_NOT_SUPPORTED": "ContentTypeNotSupportedError",
    "INVALID_AGENT_RESPONSE": "InvalidAgentResponseError",
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": "ExtendedAgentCardNotConfiguredError",
    "EXTENSION_SUPPORT_REQUIRED": "ExtensionSupportRequiredError",
    "VERSION_NOT_SUPPORTED": "VersionNotSupportedError",
    "INVALID_REQUEST": "InvalidRequestError",
    "METHOD_NOT_FOUND": "MethodNotFoundError",
    "INVALID_PARAMS": "InvalidParamsError",
    "INTERNAL_ERROR": "InternalError",
}
_DEBUG_HINT: Final = "run it again with --debug to see the agent's error"
_TEXT_LIMIT: Final = 600


@dataclass(eq=False)
class CommandError(Exception):
    """A failure that ends a command."""

    code: str
    """A2A's name of the error, or a LocalCode."""
    message: str
    hint: str | None = None
    """A next step."""
    a2a_code: str | int | None = None
    """The code or reason on the wire."""

    def __str__(self) -> str:
        return self.message

    @property
    def exit_code(self) -> StandardExit:
        """The exit code that agrees with the code."""
        return _EXITS.get(self.code, StandardExit.FAILED)

    def to_json(self) -> dict[str, Any]:
        """Return the error object of the standard."""
        error = {
            "code": str(self.code),
            "message": " ".join(self.message.split())[:_TEXT_LIMIT],
            "hint": self.hint,
            "a2aCode": self.a2a_code,
        }
        return {"error": error}


def usage(message: str, hint: str | None = None) -> CommandError:
    """Return the failure for wrong arguments."""
    return CommandError(LocalCode.USAGE, message, hint or "see `trunkline a2a help`")


def to_failure(error: Exception, *, has_credentials: bool = False, login: str = "") -> CommandError:
    """Convert an error of the A2A client; unknown errors become A2ACLI_ERR_INTERNAL.

    `login` is a hint that says how to authenticate.
    """
    match error:
        case CommandError():
            return error
        case RpcError(refusal="UNAUTHENTICATED" | "PERMISSION_DENIED"):
            code = LocalCode.AUTH_FAILED if has_credentials else LocalCode.CREDENTIALS_MISSING
            text = error.error.text or "the agent needs credentials"
            return CommandError(code, text, login or None, _wire_code(error))
        case RpcError() if error.refusal in _A2A_NAMES:
            text = error.error.text or error.problem
            return CommandError(_A2A_NAMES[error.refusal], text, _DEBUG_HINT, _wire_code(error))
        case ServerBusyError(status=429):
            hint = "it is overloaded; try again later"
            return CommandError(LocalCode.INTERNAL, str(error), hint, 429)
        case PeerUnavailableError() | PeerTimeoutError():
            return _unreachable(error)
        case PeerRefusedError():
            wire_code = _wire_code(error) if isinstance(error, RpcError) else error.refusal or None
            return CommandError(LocalCode.INTERNAL, error.problem, _DEBUG_HINT, wire_code)
        case UnsupportedOperationError():
            return CommandError(_A2A_NAMES[error.reason], str(error), None, error.reason)
        case ConfigurationError() | InvalidArgumentError():
            return usage(str(error))
        case TrunklineError():
            return CommandError(LocalCode.INTERNAL, str(error), error.hint or _DEBUG_HINT)
    # Texts of other errors may contain content.
    return CommandError(
        LocalCode.INTERNAL, f"unexpected {type(error).__name__}", "--debug shows where it came from"
    )


def _unreachable(error: TrunklineError) -> CommandError:
    message, hint = str(error), "check the address, and that the agent runs"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
            message = f"{message}: its certificate is not trusted"
            hint = "give its root certificate with --ca-cert"
            break
        cause = cause.__cause__ or cause.__context__
    return CommandError(LocalCode.UNREACHABLE, message, hint)


def _wire_code(error: RpcError) -> str | int | None:
    code = error.error.code
    return code if isinstance(code, str | int) and code != "" else error.refusal or None
