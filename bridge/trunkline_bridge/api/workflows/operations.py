"""Performs the operations of callers outside on workflows and their runs.

A run is the task of a workflow, or of a supervisor, whose plan is shown as one. Its agent is the
name of the workflow, so credentials with agents are for the workflows in their lists.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple, TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.core.json_values import build_value, update_struct
from trunkline.core.task_states import WORKFLOW_VERSION_KEY
from trunkline.errors import (
    AgentNotFoundError,
    CursorExpiredError,
    InvalidAgentResponseError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.mesh.client import Directory, HostClient, run_paths
from trunkline.mesh.client.host_queries import fetch_task, query_task
from trunkline.mesh.client.mesh_tasks import list_agent_tasks
from trunkline.observe.audit import Action, AuditLog
from trunkline.v1 import event_pb2, message_pb2, part_pb2, snapshot_pb2, task_service_pb2
from trunkline_bridge.a2a.operations.approval_answers import answer_approval
from trunkline_bridge.a2a.operations.operations import Operations
from trunkline_bridge.api.workflows.catalog import (
    PublishedWorkflow,
    VersionDifferences,
    WorkflowCatalog,
)
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import check_permission
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.permissions import LIST_TASKS
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http import tracing

GET_WORKFLOW: Final = "GetWorkflow"
PAUSE_TASK: Final = "PauseTask"
RESUME_TASK: Final = "ResumeTask"
ROLL_BACK_WORKFLOW: Final = "RollBackWorkflow"
WORKFLOW_METHODS: Final = (GET_WORKFLOW, PAUSE_TASK, RESUME_TASK, ROLL_BACK_WORKFLOW)
"""The methods of permissions that only workflows have."""

_STEPS: Final = ("step_started", "step_finished")
_PARALLEL_READS: Final = 8

_Result = TypeVar("_Result")


class RunCursor(NamedTuple):
    """The position of an event in the journal of a run."""

    epoch: int
    sequence: int


class JournalEvent(NamedTuple):
    """An event of a run."""

    cursor: RunCursor
    header: event_pb2.BatchHeader
    event: event_pb2.Event


class Run(NamedTuple):
    """A run in a list."""

    row: snapshot_pb2.TaskSummary
    version: int | None
    """None if the run has not begun, or is not a run of a workflow file."""


JournalEvents: TypeAlias = AsyncGenerator[Sequence[JournalEvent], None]


class WorkflowOperations:
    """The operations on workflows and runs.

    They raise only TrunklineErrors and WireErrors. A run is visible to the callers of its account.
    """

    def __init__(
        self,
        directory: Directory,
        operations: Operations,
        catalog: WorkflowCatalog | None,
        streams: CallerStreams,
        audit: AuditLog | None = None,
        *,
        patience_s: float,
    ) -> None:
        """Without a catalog, no workflow is published here.

        Without an audit log, nothing is recorded. `patience_s` is the time that streams tolerate an
        unreachable host.
        """
        self._directory = directory
        self._operations = operations
        self._catalog = catalog
        self._streams = streams
        self._audit = audit
        self._patience_s = patience_s

    @property
    def has_catalog(self) -> bool:
        """True if workflows are published here."""
        return self._catalog is not None

    async def list_workflows(self, caller: Caller) -> list[str]:
        """Return the names of the published workflows that the caller may use, sorted."""
        names = [] if self._catalog is None else await self._catalog.list_names()
        return [name for name in names if _is_permitted(caller, name)]

    async def get_workflow(
        self, caller: Caller, name: str, version: int | None = None
    ) -> PublishedWorkflow:
        """Return a version of a workflow, by default the current one."""
        return await self._read(caller, name, lambda catalog: catalog.read(name, version))

    async def list_versions(self, caller: Caller, name: str) -> Sequence[int]:
        """Return the versions of a workflow, oldest first."""
        return await self._read(caller, name, lambda catalog: catalog.list_versions(name))

    async def compare(self, caller: Caller, name: str, old: int, new: int) -> VersionDifferences:
        """Return the differences of two versions."""
        return await self._read(caller, name, lambda catalog: catalog.compare(name, old, new))

    async def draw(
        self,
        caller: Caller,
        name: str,
        version: int | None = None,
        *,
        visited: Sequence[str] = (),
        failed: str = "",
    ) -> str:
        """Return a version as Mermaid text, with the path of a run on it."""
        return await self._read(
            caller,
            name,
            lambda catalog: catalog.draw(name, version, visited=visited, failed=failed),
        )

    async def roll_back(
        self, caller: Caller, name: str, version: int | None = None
    ) -> PublishedWorkflow:
        """Let new tasks of all accounts take a version, by default the one before the current."""
        self.authorize(caller, name, ROLL_BACK_WORKFLOW)
        with recorded(self._audit, caller, Action.WORKFLOW_ROLL_BACK, agent=name):
            await self._call_catalog(name, lambda catalog: catalog.roll_back(name, version))
            return await self._call_catalog(name, lambda catalog: catalog.read(name))

    async def start(
        self,
        caller: Caller,
        name: str,
        parts: Sequence[part_pb2.Part],
        *,
        message_id: str = "",
        version: int | None = None,
    ) -> snapshot_pb2.TaskSnapshot:
        """Start a workflow without waiting for its end; return the run.

        Authenticated callers that repeat a message id get the run that it started.
        """
        target = caller._replace(agent=name)
        await self._operations.authorizer.check(target, "SendMessage")
        message = message_pb2.Message(
            message_id=message_id or str(uuid.uuid4()), role=message_pb2.ROLE_USER, parts=parts
        )
        if version is not None:
            await self._check_version(name, version)
            update_struct(message.metadata, {WORKFLOW_VERSION_KEY: version})
        request = a2a_pb2.SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        started = await self._operations.send_message(target, request)
        if isinstance(started, message_pb2.Message):
            raise InvalidAgentResponseError(name, "it answered without a task; it is no workflow")
        return await self._fetch(caller, started.id)

    async def get_run(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Return a run."""
        with recorded(self._audit, caller, Action.TASK_GET, task=task_id):
            return await self._find(caller, task_id, "GetTask")

    async def get_run_at(
        self, caller: Caller, task_id: str, sequence: int | None
    ) -> tuple[snapshot_pb2.TaskSnapshot, snapshot_pb2.TaskSnapshot]:
        """Return the present state of a run, and its state after a sequence.

        Without a sequence, both are the present state.

        Raises:
            CursorExpiredError: the events up to the sequence are not retained any more.
        """
        latest = await self.get_run(caller, task_id)
        if sequence is None or sequence == latest.sequence:
            return latest, latest

        async def read(host: HostClient) -> snapshot_pb2.TaskSnapshot | None:
            async with host.watch_task(
                task_id, account=caller.account, after=sequence, with_snapshot=True, until_head=True
            ) as stream:
                return stream.snapshot

        earlier = await query_task(self._directory, task_id, read)
        if earlier is None:
            raise CursorExpiredError(task_id, str(sequence), str(latest.sequence))
        return latest, earlier

    async def list_runs(
        self, caller: Caller, name: str, request: a2a_pb2.ListTasksRequest
    ) -> a2a_pb2.ListTasksResponse:
        """Return a page of the runs of a workflow, the latest change first, without their content.

        They are read as `list_agent_tasks` reads the tasks of an agent.
        """
        target = caller._replace(agent=name)
        await self._operations.authorizer.check(target, LIST_TASKS)
        page = await self._operations.list_tasks(target, request)
        return a2a_pb2.ListTasksResponse.FromString(page.SerializeToString())

    async def list_run_rows(
        self, caller: Caller, name: str, *, page_size: int, page_token: str
    ) -> tuple[Sequence[Run], str]:
        """Return a page of the runs of a workflow, the latest change first, and the next token.

        Runs that were purged meanwhile are omitted.
        """
        await self._operations.authorizer.check(caller._replace(agent=name), LIST_TASKS)
        request = task_service_pb2.ListTasksRequest(
            account=caller.account,
            agent=name,
            page_size=page_size,
            page_token=page_token,
            with_text=True,
        )
        with recorded(self._audit, caller, Action.TASK_LIST, agent=name):
            page = await list_agent_tasks(self._directory, request)
            versions = await self._read_versions(caller, page.tasks)
        runs = [Run(row, versions[row.task_id]) for row in page.tasks if row.task_id in versions]
        return runs, page.next_page_token

    async def _read_versions(
        self, caller: Caller, rows: Sequence[snapshot_pb2.TaskSummary]
    ) -> dict[str, int | None]:
        """Return the versions of runs by id.

        A row has no version. The version is in the plan of the run's task.
        """
        versions: dict[str, int | None] = {}
        failures: list[TrunklineError] = []
        slots = asyncio.Semaphore(_PARALLEL_READS)

        async def read(task_id: str) -> None:
            async with slots:
                try:
                    snapshot = await fetch_task(self._directory, task_id, account=caller.account)
                except TaskNotFoundError:
                    return
                except TrunklineError as error:
                    # If raised here, it would leave the TaskGroup as an ExceptionGroup.
                    failures.append(error)
                    return
            versions[task_id] = run_paths.find_version(snapshot)

        async with asyncio.TaskGroup() as group:
            for row in rows:
                group.create_task(read(row.task_id))
        if failures:
            raise failures[0]
        return versions

    async def pause(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Begin no further node of a run until it is resumed; return the run."""
        with recorded(self._audit, caller, Action.TASK_PAUSE, task=task_id):
            await self._find(caller, task_id, PAUSE_TASK)
            client = self._directory.client_for_task(task_id)
            return await client.pause_task(task_id, account=caller.account)

    async def resume(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Resume a paused run; return it."""
        with recorded(self._audit, caller, Action.TASK_RESUME, task=task_id):
            await self._find(caller, task_id, RESUME_TASK)
            client = self._directory.client_for_task(task_id)
            return await client.resume_task(task_id, account=caller.account)

    async def cancel(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Cancel a run with all that it has started; return the ended run."""
        snapshot = await self._find(caller, task_id, "CancelTask")
        target = caller._replace(agent=snapshot.agent)
        await self._operations.cancel_task(target, a2a_pb2.CancelTaskRequest(id=task_id))
        return await self._fetch(caller, task_id)

    async def answer_approval(
        self, caller: Caller, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.TaskSnapshot:
        """Answer an approval that a run shows; return the run.

        Over A2A the answer is a message, so it needs the same permission.
        """
        request.account = caller.account
        task_id = request.task_id
        with recorded(
            self._audit,
            caller,
            Action.APPROVAL_ANSWER,
            task=task_id,
            approval=request.approval_id,
            decision=_render_decision(request.decision),
        ):
            snapshot = await self._find(caller, task_id, "SendMessage")
            await answer_approval(self._directory, request, snapshot)
            return await self._fetch(caller, task_id)

    async def read_steps(self, caller: Caller, task_id: str) -> list[JournalEvent] | None:
        """Return the begins and ends of the nodes of a run so far.

        Events of the tasks that the run has started are left out. The result is None if the
        events are not retained any more.
        """
        await self._find(caller, task_id, "SubscribeToTask")

        async def read(host: HostClient) -> list[JournalEvent]:
            async with host.watch_task(
                task_id, account=caller.account, after=0, with_snapshot=False, until_head=True
            ) as stream:
                return [
                    found
                    async for sealed in stream
                    for found in _unseal(sealed)
                    if found.event.WhichOneof("event") in _STEPS
                    and not found.header.HasField("origin")
                ]

        try:
            return await query_task(self._directory, task_id, read)
        except CursorExpiredError:
            return None

    @asynccontextmanager
    async def watch(
        self, caller: Caller, task_id: str, after: RunCursor
    ) -> AsyncIterator[JournalEvents]:
        """Open the events of a run after a position, until the run has ended.

        The stream counts for its account, and ends when the caller's credential is refused.
        """
        with self._streams.hold(caller):
            with recorded(self._audit, caller, Action.TASK_SUBSCRIBE, task=task_id):
                await self._find(caller, task_id, "SubscribeToTask")
            async with self._directory.watch(
                task_id,
                account=caller.account,
                after=after.sequence,
                epoch=after.epoch,
                patience_s=self._patience_s,
            ) as stream:

                async def read() -> JournalEvents:
                    async for sealed in stream:
                        yield _unseal(sealed)

                async with aclosing(read()) as events:
                    yield events

    async def _find(self, caller: Caller, task_id: str, method: str) -> snapshot_pb2.TaskSnapshot:
        """Return a run if the caller may use a method at its workflow."""
        snapshot = await self._fetch(caller, task_id)
        self.authorize(caller, snapshot.agent, method)
        tracing.record_task(snapshot)
        return snapshot

    async def _fetch(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        return await fetch_task(self._directory, task_id, account=caller.account)

    async def _read(
        self, caller: Caller, name: str, read: Callable[[WorkflowCatalog], Awaitable[_Result]]
    ) -> _Result:
        self.authorize(caller, name, GET_WORKFLOW)
        return await self._call_catalog(name, read)

    async def _call_catalog(
        self, name: str, call: Callable[[WorkflowCatalog], Awaitable[_Result]]
    ) -> _Result:
        if self._catalog is None:
            raise AgentNotFoundError(name)
        return await call(self._catalog)

    async def _check_version(self, name: str, version: int) -> None:
        """Check a version of a workflow that is published here.

        Its host checks all other versions.
        """
        if self._catalog is not None and name in await self._catalog.list_names():
            await self._call_catalog(name, lambda catalog: catalog.read(name, version))

    def authorize(self, caller: Caller, name: str, method: str) -> None:
        """Check that the caller may use a method at a workflow. WireError: it may not."""
        check_permission(self._audit, caller, name, method)


def build_input(text: object, data: object) -> Sequence[part_pb2.Part]:
    """Return the input of a workflow: either a text or an object.

    WireError: it has another type.
    """
    if (text is None) == (data is None):
        raise invalid_params(("data", "give either `text` or `data`"))
    if text is not None:
        if not isinstance(text, str):
            raise invalid_params(("text", "must be a text"))
        return [part_pb2.Part(text=text)]
    if not isinstance(data, dict):
        raise invalid_params(("data", "must be an object"))
    try:
        value = build_value(data)
    except ValueError:
        raise invalid_params(("data", "is no JSON object")) from None
    return [part_pb2.Part(data=value, media_type="application/json")]


def _is_permitted(caller: Caller, name: str) -> bool:
    try:
        caller.permissions.check(name, GET_WORKFLOW)
    except WireError:
        return False
    return True


def _unseal(sealed: Sequence[bytes]) -> list[JournalEvent]:
    """Return the events of batches, each with the sequence that it ends at."""
    found: list[JournalEvent] = []
    for data in sealed:
        batch = event_pb2.EventBatch.FromString(data)
        sequence = batch.header.first_sequence - 1
        for event in batch.events:
            texts = event.delta.texts or event.plan.texts
            sequence += len(texts) or 1
            found.append(JournalEvent(RunCursor(batch.header.epoch, sequence), batch.header, event))
    return found


def _render_decision(decision: event_pb2.ApprovalDecision.ValueType) -> str:
    return event_pb2.ApprovalDecision.Name(decision).removeprefix("APPROVAL_DECISION_").lower()
