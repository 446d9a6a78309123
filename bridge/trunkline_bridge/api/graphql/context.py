"""The context of an operation: its caller, and the operations of the mesh that fields call."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Concatenate, Final, ParamSpec, TypeVar

from trunkline.a2a_wire.errors import invalid_params
from trunkline.core.settings import GraphQLSettings
from trunkline.errors import PeerTimeoutError
from trunkline_bridge.api.messages.operations import MessageOperations
from trunkline_bridge.api.workflows.operations import WorkflowOperations
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.request_rates import RequestRates

DEFAULT_PAGE_SIZE: Final = 20
"""The default of `first` of a page, as the schema has it."""

# A page whose elements call the mesh, such as the runs of a workflow, makes no more calls at once.
_PARALLEL_CALLS: Final = 8

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class MeshAccess:
    """The mesh for GraphQL: its operations, the rates of requests, and the settings."""

    messages: MessageOperations
    workflows: WorkflowOperations
    rates: RequestRates
    settings: GraphQLSettings


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The context of one operation, or of a connection, whose operations have copies of it."""

    caller: Caller
    mesh: MeshAccess
    counted: int
    """The number of root fields that are counted for the rate of the account already."""
    deadline: float | None = None
    """The time of the event loop at which a query or a mutation fails. With None, each call has
    its own time limit. Subscriptions use this, because they last.
    """
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_PARALLEL_CALLS))

    def start(self, *, is_stream: bool) -> "OperationContext":
        """Return the context of an operation that starts now."""
        deadline = None if is_stream else self._find_deadline()
        return OperationContext(self.caller, self.mesh, self.counted, deadline)

    @property
    def remaining_s(self) -> float:
        """The seconds until the deadline."""
        now_s = asyncio.get_running_loop().time()
        return max(0.0, (self.deadline or self._find_deadline()) - now_s)

    def _find_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.mesh.settings.timeout_s

    @property
    def messages(self) -> MessageOperations:
        """The operations on messages."""
        return self.mesh.messages

    @property
    def workflows(self) -> WorkflowOperations:
        """The operations on workflows and runs."""
        return self.mesh.workflows

    async def call(
        self,
        operation: Callable[Concatenate[Caller, _Params], Awaitable[_Result]],
        *args: _Params.args,
        **kwargs: _Params.kwargs,
    ) -> _Result:
        """Call an operation of the mesh for the caller, within the deadline.

        Raises:
            PeerTimeoutError: the deadline has passed.
        """
        try:
            async with asyncio.timeout_at(self.deadline or self._find_deadline()), self._slots:
                return await operation(self.caller, *args, **kwargs)
        except TimeoutError:
            limit = f"{self.mesh.settings.timeout_s:g}"
            problem = f"the operation did not end within {limit} s; ask for less, or try again"
            raise PeerTimeoutError("the mesh", problem) from None

    def check_page_size(self, first: int) -> int:
        """Return the size of a page. WireError: it is out of range."""
        limit = self.mesh.settings.page_size
        if not 1 <= first <= limit:
            raise invalid_params(("first", f"must be 1 to {limit}"))
        return first
