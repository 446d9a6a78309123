"""The base class of all deliberate errors of the mesh, and their status codes."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Final, Self

ERROR_DOMAIN: Final = "trunkline.dev"
"""The domain of our errors in google.rpc.ErrorInfo."""


class Code(StrEnum):
    """Status codes by their google.rpc names."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


@dataclass(eq=False)
class TrunklineError(Exception):
    """The base class. Subclasses are dataclasses whose fields are sent as metadata, as text."""

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    # One line that names the problem and the next step, with the fields in braces.
    template: ClassVar[str] = "unknown error"
    # The next step for users of the command line, the only place that shows it.
    hint: ClassVar[str] = ""

    def metadata(self) -> dict[str, str]:
        """Return the fields by name, for google.rpc.ErrorInfo."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> Self:
        """Build the error from the result of `metadata`; a missing field is an empty string."""
        return cls(**{field.name: metadata.get(field.name, "") for field in fields(cls)})

    def __str__(self) -> str:
        return self.template.format_map(self.metadata())


def error_classes() -> Iterator[type[TrunklineError]]:
    """Yield every subclass of TrunklineError that defines a reason."""
    pending = list(TrunklineError.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "reason" in vars(cls):
            yield cls


@dataclass(eq=False)
class InternalError(TrunklineError):
    """A defect. Only the host's log has the cause, under the trace id."""

    trace_id: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    template: ClassVar[str] = "internal error; the host's log has the cause under trace {trace_id}"
