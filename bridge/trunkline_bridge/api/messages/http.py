"""Messages over HTTP: the routes below `/messages`, with the JSON mapping of the contract."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from starlette.routing import BaseRoute

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.core.json_values import message_to_dict
from trunkline.messages.store import Envelope, EnvelopeFilter
from trunkline.v1 import messaging_service_pb2
from trunkline_bridge.a2a.operations.request_parser import parse_message
from trunkline_bridge.api.json_resource import NO_HEADERS, BuildHandler, ResourcePaths, json_routes
from trunkline_bridge.api.messages.operations import MessageOperations
from trunkline_bridge.callers.caller import Caller, CallerFactory
from trunkline_bridge.http.handler import Response
from trunkline_bridge.http.messages import rest_error_body
from trunkline_bridge.http.requests import read_query, unknown_field
from trunkline_bridge.http.sse import EventStreamResponse, render_error_event

_REQUEST_TIMEOUT_S: Final = 60.0
_STATE: Final = "DELIVERY_STATE_"
_MAX_POSITION: Final = 2**63 - 1
_FILTER_FIELDS: Final = tuple(EnvelopeFilter.DESCRIPTOR.fields)
_LIST_FIELDS: Final = messaging_service_pb2.ListEnvelopesRequest.DESCRIPTOR.fields_by_name
_WATCH_FIELDS: Final = messaging_service_pb2.WatchEnvelopesRequest.DESCRIPTOR.fields_by_name
# The parameters of queries. Positions are numbers there, and unsigned in the contract.
_QUERY_FIELDS: Final[Mapping[str, Sequence[Any]]] = {
    "_list": (*_FILTER_FIELDS, _LIST_FIELDS["page_size"], _LIST_FIELDS["page_token"]),
    "_watch": (*_FILTER_FIELDS, _WATCH_FIELDS["after_position"], _WATCH_FIELDS["with_deliveries"]),
}


def _field_names(message_type: type[Message]) -> frozenset[str]:
    """Return the names of the fields in JSON. Each field has two names."""
    fields = message_type.DESCRIPTOR.fields
    return frozenset(name for field in fields for name in (field.json_name, field.name))


_FILTER_NAMES: Final = _field_names(EnvelopeFilter)

_M = TypeVar("_M", bound=Message)


def parse_envelope(value: object, *, recipient: str = "") -> Envelope:
    """Return the message in a JSON object; `recipient` is the default.

    Raises:
        WireError: it does not fit, or has an unknown member.
    """
    _refuse_unknown(value, Envelope)
    envelope = parse_message(value, message_type=Envelope)
    envelope.recipient = envelope.recipient or recipient
    return envelope


def parse_position(text: str, *, field: str) -> int:
    """Return a position. WireError: it is invalid."""
    if not text.isdecimal() or int(text[:20]) > _MAX_POSITION:
        raise invalid_params((field, "is no position; use the id of an event, or 0 for all"))
    return int(text)


class MessageRenderer:
    """Renders messages as server-sent events; the id of an event is its position."""

    def __init__(self) -> None:
        self._position = -1

    def render_chunks(
        self, events: Sequence[messaging_service_pb2.WatchEnvelopesResponse]
    ) -> Iterator[bytes]:
        """Yield rendered responses of the messaging service."""
        for event in events:
            for stored in event.envelopes:
                data = dumps(message_to_dict(stored))
                yield f"{self._id_line(stored.position)}data: {data}\n\n".encode()
            if id_line := self._id_line(event.position):
                # The position to continue from, if it is not a message's position.
                yield f"event: position\n{id_line}data: {{}}\n\n".encode()

    def _id_line(self, position: int) -> str:
        """Return the line with an event's id; empty for a message that only changed."""
        if position <= self._position:
            return ""
        self._position = position
        return f"id: {position}\n"

    def render_error(self, error: WireError) -> bytes:
        """Render the event that reports an error and ends the stream."""
        return render_error_event(dumps(rest_error_body(error)).encode(), event_type="error")


class MessageBinding:
    """The routes of messages and rooms: for all clients, or for the page below its own root."""

    def __init__(
        self,
        operations: MessageOperations,
        callers: CallerFactory,
        *,
        root: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """`headers` are added to all responses."""
        self._callers = callers
        self._operations = operations
        self._path = f"{root}/messages"
        self._headers = headers

    def routes(self, build_handler: BuildHandler) -> list[BaseRoute]:
        """Return the routes; `build_handler` builds the application of each."""
        room = f"{self._path}/rooms/{{room:segment}}"
        paths: ResourcePaths = {
            self._path: {"GET": self._list, "POST": self._send},
            f"{self._path}:request": {"POST": self._request},
            f"{self._path}:watch": {"GET": self._watch},
            f"{self._path}:replay": {"POST": self._replay},
            f"{self._path}:redrive": {"POST": self._redrive},
            f"{self._path}:purge": {"POST": self._purge},
            f"{self._path}/rooms": {"GET": self._list_rooms},
            f"{room}:join": {"POST": self._join},
            f"{room}:leave": {"POST": self._leave},
            f"{room}/messages": {"GET": self._list},
            room: {"GET": self._get_room},
            f"{self._path}/{{envelope_id:segment}}": {"GET": self._get},
        }
        return json_routes(
            paths,
            self._callers,
            build_handler,
            name="messages",
            read_query=_read_query,
            headers=self._headers,
        )

    async def _send(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Message:
        if "envelopes" in params:
            _refuse_unknown(params, messaging_service_pb2.SendEnvelopesRequest)
            for envelope in params["envelopes"] if isinstance(params["envelopes"], list) else ():
                _refuse_unknown(envelope, Envelope)
            request = parse_message(params, message_type=messaging_service_pb2.SendEnvelopesRequest)
            if request.agent or request.HasField("cause"):
                raise invalid_params(("agent", "only agents on the mesh send as agents"))
            envelopes = list(request.envelopes)
        else:
            envelopes = [parse_envelope(params)]
        stored = await self._operations.send(caller, envelopes)
        return messaging_service_pb2.SendEnvelopesResponse(envelopes=stored)

    async def _request(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Message:
        timeout_s = _REQUEST_TIMEOUT_S
        if caller.deadline is not None:
            timeout_s = max(0.0, (caller.deadline - datetime.now(UTC)).total_seconds())
        return await self._operations.request(caller, parse_envelope(params), timeout_s=timeout_s)

    async def _get(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Message:
        return await self._operations.get(caller, path["envelope_id"])

    async def _list(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Message:
        query = _read_filter(params, path)
        size = str(params.get("pageSize") or 0)
        if not size.isdecimal() or int(size[:9]) > 1000:
            raise invalid_params(("pageSize", "must be 1 to 1000"))
        return await self._operations.read_page(
            caller, query, page_size=int(size), page_token=str(params.get("pageToken", ""))
        )

    async def _watch(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Response:
        after = caller.last_event_id or str(params.get("afterPosition", ""))
        with_deliveries = params.get("withDeliveries", False)
        if not isinstance(with_deliveries, bool):
            raise invalid_params(("withDeliveries", "must be true or false"))
        events = self._operations.watch(
            caller,
            _read_filter(params, path),
            after_position=parse_position(after, field="afterPosition") if after else None,
            with_deliveries=with_deliveries,
        )
        return EventStreamResponse(events, MessageRenderer(), self._headers)

    async def _replay(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Message:
        request = _parse_action(params, messaging_service_pb2.ReplayEnvelopesRequest)
        ids = await self._operations.replay(
            caller, request.filter, recipient=request.recipient, dry_run=request.dry_run
        )
        return messaging_service_pb2.ReplayEnvelopesResponse(envelope_ids=ids)

    async def _redrive(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Message:
        request = _parse_action(params, messaging_service_pb2.RedriveEnvelopesRequest)
        count = await self._operations.redrive(caller, request.filter)
        return messaging_service_pb2.RedriveEnvelopesResponse(deliveries=count)

    async def _purge(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Message:
        request = _parse_action(params, messaging_service_pb2.PurgeEnvelopesRequest)
        count = await self._operations.purge(caller, request.filter)
        return messaging_service_pb2.PurgeEnvelopesResponse(envelopes=count)

    async def _list_rooms(self, caller: Caller, _params: Json, _path: Mapping[str, str]) -> Message:
        rooms = await self._operations.list_rooms(caller)
        return messaging_service_pb2.ListRoomsResponse(rooms=rooms)

    async def _get_room(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Message:
        return await self._operations.get_room(caller, path["room"])

    async def _join(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Message:
        return await self._operations.join(caller, path["room"], _read_member(params))

    async def _leave(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Message:
        return await self._operations.leave(caller, path["room"], _read_member(params))


def _read_query(query: bytes, handler: str) -> Json:
    """Return the parameters in a query of a handler. WireError: one is unknown."""
    return read_query(query, _QUERY_FIELDS.get(handler, ()), refuses_others=True)


def _read_filter(params: Json, path: Mapping[str, str]) -> EnvelopeFilter:
    """Return the filter in a query; a room in the path is a condition."""
    fields = {name: value for name, value in params.items() if name in _FILTER_NAMES}
    query = parse_message(_with_full_states(fields), message_type=EnvelopeFilter)
    if "room" in path:
        query.room = path["room"]
    return query


def _parse_action(params: Json, message_type: type[_M]) -> _M:
    """Return a request to change or repeat the messages that match a filter.

    Raises:
        WireError: a field is invalid or unknown. If a mistyped condition were ignored, the filter
            would match more messages.
    """
    _refuse_unknown(params, message_type)
    conditions = params.get("filter")
    if isinstance(conditions, dict):
        _refuse_unknown(conditions, EnvelopeFilter, "filter.")
        params = {**params, "filter": _with_full_states(conditions)}
    return parse_message(params, message_type=message_type)


def _refuse_unknown(value: object, message_type: type[Message], prefix: str = "") -> None:
    """Refuse members that a JSON object can't have. The bridge sets account and caller itself.

    Raises:
        WireError: it names the first unknown member.
    """
    if not isinstance(value, dict):
        return
    known = _field_names(message_type) - {"account", "caller"}
    for name in value:
        if name not in known:
            fields = (field.json_name for field in message_type.DESCRIPTOR.fields)
            raise unknown_field(f"{prefix}{name}", (field for field in fields if field in known))


def _with_full_states(fields: Json) -> Json:
    """Return the fields of a filter, with the states by their names in the contract."""
    states = fields.get("states")
    if not isinstance(states, list) or not all(isinstance(state, str) for state in states):
        return fields
    names = (state.strip().upper() for state in states)
    full = [name if name.startswith(_STATE) else f"{_STATE}{name}" for name in names]
    return {**fields, "states": full}


def _read_member(params: Json) -> str:
    if others := params.keys() - {"member"}:
        raise unknown_field(min(others), ["member"])
    member = params.get("member", "")
    if not isinstance(member, str):
        raise invalid_params(("member", "must be the name of an agent, or empty for the caller"))
    return member
