"""The page's view of the wire: a stored task as the stream that clients of a version get."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import V0_1, V0_3, V1_0
from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline.core.settings import Settings
from trunkline.errors import CursorExpiredError
from trunkline.mesh.client import Directory, HostClient, TaskStream
from trunkline.mesh.client.host_queries import fetch_task, query_task
from trunkline.observe.audit import Action, AuditLog
from trunkline.v1 import event_pb2, snapshot_pb2
from trunkline_bridge.a2a.cards.agent_cards import AgentCards
from trunkline_bridge.a2a.projection import (
    EventId,
    FileLinks,
    View,
    WireEvent,
    open_projection,
    project_task,
    snapshot_event,
)
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer, EventWriter
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame
from trunkline_bridge.api.page.binding import API_PATH, Paths, read_number, read_text
from trunkline_bridge.api.page.curl_commands import METHODS, TaskCommands
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import check_permission
from trunkline_bridge.callers.caller import Caller

_METHOD: Final = "SubscribeToTask"
_MAX_PAGE_SIZE: Final = 500
_MAX_PAGE_CHARS: Final = 2 * 1024 * 1024
_DATA: Final = "data: "


class PageWire:
    """The events of a task in the frames of A2A, and its requests as curl commands."""

    def __init__(
        self,
        directory: Directory,
        settings: Settings,
        cards: AgentCards,
        audit: AuditLog | None = None,
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self._directory = directory
        self._settings = settings
        self._cards = cards
        self._audit = audit

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {f"{API_PATH}/tasks/{{task_id:segment}}/wire": {"GET": self._get_wire}}

    async def _get_wire(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        """Return a page of frames. Only the first page has the commands.

        If the first events are past retention, the frames begin with the current task.
        """
        version = read_text(params, "version", V1_0)
        if version not in METHODS:
            raise invalid_params(("version", f"must be one of {', '.join(METHODS)}"))
        token = read_text(params, "pageToken")
        size = read_number(params, "pageSize", limit=_MAX_PAGE_SIZE) or _MAX_PAGE_SIZE
        seen = EventId.parse(token) if token else None
        if token and seen is None:
            raise invalid_params(("pageToken", "is unknown; start from the first page"))
        task_id = path["task_id"]
        with recorded(self._audit, caller, Action.TASK_SUBSCRIBE, task=task_id):
            snapshot = await fetch_task(self._directory, task_id, account=caller.account)
            check_permission(self._audit, caller, snapshot.agent, _METHOD, task_id)
            reader = _FrameReader(
                self._directory,
                caller.account,
                version,
                links=self._cards.file_links(caller.origin),
                view=View(self._settings.agent_view(snapshot.agent)),
            )
            result = await reader.read_page(snapshot, seen, size)
        if seen is None:
            base = self._cards.base_url(caller.origin)
            url = f"{base}/agents/{quote(snapshot.agent, safe='')}"
            commands = TaskCommands(version, url, self._cards.file_links(caller.origin))
            result["requests"] = list(commands.build(snapshot))
        return result


class _FrameReader:
    """Reads the journal of a task, and renders its events in one version."""

    def __init__(
        self, directory: Directory, account: str, version: str, *, links: FileLinks, view: View
    ) -> None:
        self._directory = directory
        self._account = account
        self._version = version
        self._links = links
        self._view = view

    async def read_page(
        self, snapshot: snapshot_pb2.TaskSnapshot, seen: EventId | None, size: int
    ) -> Json:
        """Return up to `size` events after `seen` as frames, and the next page's token.

        Raises:
            CursorExpiredError: the events after `seen` are past retention.
        """
        task_id = snapshot.task.id
        try:
            return await query_task(
                self._directory, task_id, lambda host: self._read(host, task_id, seen, size)
            )
        except CursorExpiredError:
            if seen is not None:
                raise
        event = snapshot_event(snapshot, links=self._links, view=self._view)
        frames = [frame for _, frame in self._render(self._open_renderer(None, task_id), event)]
        return {"frames": frames, "nextPageToken": ""}

    async def _read(self, host: HostClient, task_id: str, seen: EventId | None, size: int) -> Json:
        # The event of `seen` is read again, because it may have several wire events.
        after = 0 if seen is None else seen.sequence - 1
        frames: list[Json] = []
        last, count, chars = "", 0, 0
        async with host.watch_task(
            task_id,
            account=self._account,
            after=after,
            epoch=0 if seen is None else seen.epoch,
            with_snapshot=after > 0,
            until_head=True,
        ) as stream:
            snapshot = stream.take_snapshot() if after else None
            renderer = self._open_renderer(snapshot, task_id)
            async for event in self._project(stream, snapshot):
                if seen is not None and (event.sequence, event.n) <= seen[:2]:
                    continue
                if count == size or chars > _MAX_PAGE_CHARS:
                    # The event is on the next page.
                    return {"frames": frames, "nextPageToken": last}
                for length, frame in self._render(renderer, event):
                    chars += length
                    frames.append(frame)
                count, last = count + 1, event.id
        return {"frames": frames, "nextPageToken": ""}

    async def _project(
        self, stream: TaskStream, snapshot: snapshot_pb2.TaskSnapshot | None
    ) -> AsyncIterator[WireEvent]:
        apply = open_projection(snapshot, links=self._links, view=self._view).apply
        async for batches in stream:
            for sealed in batches:
                for event in apply(event_pb2.EventBatch.FromString(sealed)):
                    yield event

    def _open_renderer(
        self, snapshot: snapshot_pb2.TaskSnapshot | None, task_id: str
    ) -> EventRenderer:
        """Return the renderer of a stream over JSON-RPC that continues after a snapshot."""
        writer: EventWriter
        if self._version == V0_1:
            older = V01EventWriter(task_id)
            if snapshot is not None:
                # Artifacts of earlier pages keep their indexes.
                older.assign_indexes(project_task(snapshot, view=self._view))
            writer = older
        else:
            writer = V03EventWriter() if self._version == V0_3 else V1EventWriter()
        return EventRenderer(writer, event_frame(1))

    def _render(self, renderer: EventRenderer, event: WireEvent) -> Iterator[tuple[int, Json]]:
        """Yield the frames of an event, in v0.1 any number, each with its length."""
        for line in renderer.render(event).split("\n"):
            if line.startswith(_DATA):
                frame = {
                    "id": event.id,
                    "sequence": event.sequence,
                    "method": METHODS[self._version].stream,
                    "json": json.loads(line.removeprefix(_DATA)),
                }
                yield len(line), frame
