"""Records in the audit log what callers did."""

from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from trunkline.a2a_wire.errors import to_wire_error
from trunkline.observe.audit import OK, Action, AuditLog, outcome_of
from trunkline_bridge.callers.caller import Caller, caller_actor

_CANCELED: Final = "CANCELLED"


class OperationRecord:
    """Records one operation when its block ends, or earlier if the block calls `write`."""

    __slots__ = ("_action", "_audit", "_caller", "_objects")

    def __init__(
        self, audit: AuditLog | None, caller: Caller, action: Action, objects: dict[str, str]
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self._audit = audit
        self._caller = caller
        self._action = action
        self._objects = objects

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.write(OK if exc_val is None else _outcome(exc_val))

    def add_objects(self, objects: Mapping[str, str]) -> None:
        """Add ids of objects by their kind. Later ones replace earlier ones."""
        self._objects.update(objects)

    def write(self, outcome: str) -> None:
        """Write the record, unless it is written already."""
        audit, self._audit = self._audit, None
        if audit is not None:
            actor = caller_actor(self._caller)
            audit.record(self._action, actor, outcome=outcome, **self._objects)


def recorded(
    audit: AuditLog | None, caller: Caller, action: Action, **objects: str
) -> OperationRecord:
    """Return the record of an operation on these objects, for the block that performs it."""
    is_recorded = audit is not None and audit.covers(action)
    return OperationRecord(audit if is_recorded else None, caller, action, objects)


def _outcome(error: BaseException) -> str:
    if not isinstance(error, Exception):
        # The client has gone, or this process stops.
        return _CANCELED
    return outcome_of(to_wire_error(error).kind.reason)
