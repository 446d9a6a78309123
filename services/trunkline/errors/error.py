"""What every deliberate error of the mesh has in common."""

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
    """The root. Subclasses are dataclasses: their fields travel as metadata, all as text."""

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    # What is wrong and what to do next, in a line.
    template: ClassVar[str] = "something went wrong"
    # What to do next for those who have our command line; it alone says so.
    hint: ClassVar[str] = ""

    def metadata(self) -> dict[str, str]:
        """The fields by name, for google.rpc.ErrorInfo."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> Self:
        """Make the error again from what `metadata` gave; a missing field is empty."""
        return cls(**{field.name: metadata.get(field.name, "") for field in fields(cls)})

    def __str__(self) -> str:
        return self.template.format_map(self.metadata())


def error_classes() -> Iterator[type[TrunklineError]]:
    """Yield every error class that has a reason of its own, the root left out."""
    pending = list(TrunklineError.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "reason" in vars(cls):
            yield cls


@dataclass(eq=False)
class InternalError(TrunklineError):
    """A defect. Its cause is in the log under the trace id, and nowhere else."""

    trace_id: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    template: ClassVar[str] = "internal error; the host's log has the cause under trace {trace_id}"
