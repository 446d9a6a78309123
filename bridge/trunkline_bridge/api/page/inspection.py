"""One inspection of a remote agent: reads and checks its card, and sends it a message."""

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.a2a_client.agent_card import card_url_candidates, parse_remote_card
from trunkline.a2a_client.card_check import find_card_problems
from trunkline.a2a_client.http import HttpClient
from trunkline.a2a_client.interfaces import (
    Interface,
    InterfaceSelector,
    ProtocolBinding,
    parse_host,
)
from trunkline.a2a_client.settings import NO_BREAKER, RemoteSettings
from trunkline.a2a_client.tls import ChannelSecurity
from trunkline.a2a_client.transport import CallOptions
from trunkline.a2a_wire.errors import to_wire_error
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import SEND_MESSAGE
from trunkline.a2a_wire.protocol import KEYS_PATH, V1_0, VERSION_HEADER
from trunkline.client.safe_fetch.address_guard import AddressGuard, AddressRefusedError
from trunkline.errors import PeerError, PeerProtocolError, TrunklineError
from trunkline.task_states import INTERRUPTED, TERMINAL, state_name
from trunkline.v1 import message_pb2, part_pb2, task_pb2
from trunkline_bridge.api.page.binding import PageEvent
from trunkline_bridge.http.json_decoder import decode_json

LIMIT_S: Final = 60.0
"""The time of one inspection."""
_CALL_S: Final = 10.0
_IDLE_S: Final = 30.0
_MAX_DOCUMENT_BYTES: Final = 1024 * 1024
_MAX_FRAMES: Final = 1000
_MAX_FRAME_BYTES: Final = 4 * 1024 * 1024


class InspectRequest(NamedTuple):
    """An inspection that an operator asks for."""

    url: str
    action: str
    """`card`, `send` or `stream`."""
    text: str = ""
    binding: str = ""
    """The only binding to use. If empty, the first binding of the card is used."""
    version: str = ""
    """The only version to use. If empty, any version is used."""
    headers: Mapping[str, str] = {}
    """Sent with every request; they may hold credentials."""


class _Stopped(Exception):  # noqa: N818  it ends an inspection whose problem is reported
    """The inspection has ended early. Its last step says why."""


class Report:
    """The events of an inspection, as they happen.

    Headers are never recorded, because they hold credentials. The object is also the observer of
    the inspected connection.
    """

    def __init__(self) -> None:
        # Bounded by the limits of frames and of a card's problems: observers can't wait.
        self.events: asyncio.Queue[PageEvent | None] = asyncio.Queue()
        self.has_failed = False
        self._frames = 0
        self._bytes = 0

    def step(self, name: str, detail: str, *, ok: bool = True, **members: str) -> None:
        """Report a step and its outcome."""
        self.has_failed = self.has_failed or not ok
        texts = {"detail": detail, **members}
        # Texts of agents may have unpaired surrogates, which UTF-8 lacks.
        clean = {key: text.encode("utf-8", "replace").decode() for key, text in texts.items()}
        step = {"name": name, "ok": ok, **clean}
        self.events.put_nowait(PageEvent("step", step))

    def fail(self, name: str, detail: str) -> _Stopped:
        """Report a step that failed, and return the error that ends the inspection."""
        self.step(name, detail, ok=False)
        return _Stopped(detail)

    def finish(self) -> None:
        """Report the end."""
        self.events.put_nowait(PageEvent("done", {"ok": not self.has_failed}))
        self.events.put_nowait(None)

    def request(self, target: str, _headers: Mapping[str, str], body: bytes) -> None:
        """Report a sent request."""
        self._add("sent", body, target=target)

    def response(self, status: str, _headers: Mapping[str, str]) -> None:
        """Report the status of a response."""
        self._add("received", b"", status=status)

    def data(self, content: bytes) -> None:
        """Report a body or an event that was received."""
        self._add("received", content)

    def _add(self, direction: str, content: bytes, **members: str) -> None:
        self._frames += 1
        self._bytes += len(content)
        if self._frames > _MAX_FRAMES or self._bytes > _MAX_FRAME_BYTES:
            limits = f"{_MAX_FRAMES:,} frames or {_MAX_FRAME_BYTES // 1024:,} KiB"
            raise PeerProtocolError("the agent", f"it sent over {limits}, the limit of inspections")
        frame: Json = {"direction": direction, **members}
        if content:
            frame |= _read_content(content)
        self.events.put_nowait(PageEvent("frame", frame))


class Inspection:
    """Inspects one agent within limits of time, size and addresses."""

    def __init__(self, request: InspectRequest, guard: AddressGuard, report: Report) -> None:
        self._request = request
        self._guard = guard
        self._report = report

    async def run(self) -> None:
        """Inspect the agent, and report all steps, errors included, and the end."""
        report = self._report
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._inspect()
        except _Stopped:
            pass
        except TimeoutError:
            report.step("time", f"the inspection took over {LIMIT_S:g} s", ok=False)
        except AddressRefusedError as error:
            report.step("address", f"the URL {error}", ok=False)
        except TrunklineError as error:
            # The caller named the address itself, so it may see it.
            report.step(self._request.action, _explain(error), ok=False, reason=error.reason)
        except Exception as error:  # noqa: BLE001  the stream has begun: only a step can report it
            report.step(self._request.action, to_wire_error(error).text, ok=False)
        finally:
            report.finish()

    async def _inspect(self) -> None:
        # Loads an HTTP client.
        from trunkline.a2a_client.guarded_transport import GuardedTransport

        request, report = self._request, self._report
        checked = await self._check_address("address", request.url)
        report.step("address", f"{checked} may be called")
        http = HttpClient(
            "the agent", request.url, request.headers, transport=GuardedTransport(self._guard)
        )
        try:
            card_url, body = await self._fetch_card(http)
            value = await self._read_card(body)
            await self._check_signature(http, card_url, body, value)
        finally:
            await http.close()
        interface = self._select(card_url, body)
        if request.action != "card":
            await self._send(interface)

    async def _check_address(self, step: str, url: str) -> str:
        """Return the host and port of a URL that may be called."""
        try:
            return (await self._guard.check(url)).authority
        except AddressRefusedError as error:
            raise self._report.fail(step, f"{url} {error}") from None

    async def _fetch_card(self, http: HttpClient) -> tuple[str, bytes]:
        """Return the card of the first address that has one, and the address."""
        statuses: list[str] = []
        for url in card_url_candidates(self._request.url):
            try:
                response = await http.request(
                    "GET", url, headers={VERSION_HEADER: V1_0}, timeout_s=_CALL_S
                )
            except PeerError as error:
                raise self._report.fail("fetch", f"{url}: {error}") from None
            if response.status == 200:
                size = len(response.body)
                if size > _MAX_DOCUMENT_BYTES:
                    raise self._report.fail("fetch", f"the card at {url} is over 1 MiB")
                self._report.step(
                    "fetch",
                    f"{url} has a document of {size:,} bytes",
                    mediaType=response.media_type,
                )
                return url, response.body
            statuses.append(f"HTTP {response.status} at {url}")
        raise self._report.fail("fetch", f"there is no card: {'; '.join(statuses)}")

    async def _read_card(self, body: bytes) -> Json:
        """Report the card and its problems; return its JSON."""
        report = self._report
        try:
            value = await asyncio.to_thread(decode_json, body)
        except ValueError as error:
            raise report.fail("card", f"the document is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise report.fail("card", "the document is no JSON object")
        report.data(body)
        problems = find_card_problems(value)
        for field, problem, expected in problems:
            detail = f"{field} {problem}; expected: {expected}"
            members = {"field": field, "problem": problem, "expected": expected}
            report.step("card", detail, ok=False, **members)
        if not problems:
            report.step("card", "the card has all that A2A requires")
        return value

    async def _check_signature(
        self, http: HttpClient, card_url: str, body: bytes, value: Json
    ) -> None:
        report = self._report
        if not value.get("signatures"):
            report.step("signature", "the card is not signed")
            return
        # cryptography is slow to load.
        from trunkline.a2a_wire.card_signatures import (
            InvalidSignatureError,
            parse_trusted_keys,
            verify_card,
        )

        parts = urlsplit(card_url)
        keys_url = urlunsplit((parts.scheme, parts.netloc, KEYS_PATH, "", ""))
        try:
            response = await http.request("GET", keys_url, headers={}, timeout_s=_CALL_S)
            if response.status != 200 or len(response.body) > _MAX_DOCUMENT_BYTES:
                text = f"no key set to check it by: HTTP {response.status} at {keys_url}"
                report.step("signature", text, ok=False)
                return
            verified = verify_card(body, parse_trusted_keys(response.body))
        except (InvalidSignatureError, TrunklineError, ValueError) as error:
            text = " ".join(str(error).split())[:500]
            report.step("signature", f"not valid by the keys at {keys_url}: {text}", ok=False)
            return
        report.step(
            "signature",
            f"valid: {verified.algorithm} by key {verified.key_id} of the card's origin, "
            f"over the card as {verified.form}",
        )

    def _select(self, card_url: str, body: bytes) -> Interface:
        """Report the interface to use, and return it."""
        request = self._request
        selector = InterfaceSelector(
            card_url,
            # The guard checks each port.
            allowed_hosts=(parse_host(card_url),),
            bindings=(request.binding,) if request.binding else (),
            versions=(request.version,) if request.version else (),
        )
        try:
            interface = parse_remote_card(body, selector).interface
        except (ValueError, TrunklineError) as error:
            raise self._report.fail("interface", str(error)) from None
        detail = f"{interface.binding} {interface.version} at {interface.url}"
        self._report.step("interface", detail)
        return interface

    async def _send(self, interface: Interface) -> None:
        """Send the message, and report the sent and received data."""
        from trunkline.a2a_client.guarded_transport import GuardedTransport

        request = self._request
        interface, security = await self._secure(interface)
        settings = RemoteSettings(
            url=request.url, headers=request.headers, breaker=NO_BREAKER, idle_s=_IDLE_S
        )
        message = message_pb2.Message(
            message_id=str(uuid.uuid4()),
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text=request.text)],
        )
        sent = a2a_pb2.SendMessageRequest(message=message)
        client = A2AClient(
            settings,
            interface=interface,
            stream_idle_s=_IDLE_S,
            max_event_bytes=_MAX_FRAME_BYTES,
            channel_security=security,
            observer=self._report,
            transport=GuardedTransport(self._guard),
        )
        client.rename("inspected")
        async with client:
            if request.action == "send":
                result = await client.call(SEND_MESSAGE, sent, CallOptions(), timeout_s=LIMIT_S)
                self._report.step("send", _describe_result(result))
            else:
                await self._stream(client, sent)

    async def _stream(self, client: A2AClient, sent: a2a_pb2.SendMessageRequest) -> None:
        count, state = 0, task_pb2.TASK_STATE_UNSPECIFIED
        has_reply = False
        async with client.stream_message(sent, CallOptions()) as events:
            async for event in events:
                count += 1
                response = event.response
                has_reply = has_reply or response.HasField("message")
                if response.HasField("task"):
                    state = response.task.status.state
                elif response.HasField("status_update"):
                    state = response.status_update.status.state
        is_over = has_reply or state in TERMINAL or state in INTERRUPTED
        ended = "with a message" if has_reply else "without a state"
        if state:
            ended = f"in state {state_name(state)}"
        detail = f"{count} events; the stream ended {ended}"
        if not is_over:
            detail += ", although the turn is not over"
        self._report.step("stream", detail, ok=is_over)

    async def _secure(self, interface: Interface) -> tuple[Interface, ChannelSecurity | None]:
        """Return an interface that can only be called at addresses that the guard accepts.

        Over HTTP the transport checks each connection. gRPC resolves names itself, so it gets an
        address, with the name that the certificate must have.
        """
        if interface.binding is not ProtocolBinding.GRPC:
            await self._check_address("connect", interface.url)
            return interface, None
        import grpc

        scheme = "https" if interface.is_secure else "http"
        url = f"{scheme}://{interface.url}"
        await self._check_address("connect", url)
        endpoint = self._guard.parse_url(url)
        address = (await self._guard.resolve_addresses(endpoint.host, endpoint.port))[0]
        host = f"[{address}]" if ":" in address else address
        security = None
        if interface.is_secure:
            security = ChannelSecurity(grpc.ssl_channel_credentials(), endpoint.host)
        return replace(interface, url=f"{host}:{endpoint.port}"), security


def _read_content(content: bytes) -> Json:
    """Return content as JSON, or as text if it is not JSON."""
    try:
        return {"json": decode_json(content)}
    except ValueError:
        return {"text": content.decode("utf-8", "replace")[:10_000]}


def _explain(error: TrunklineError) -> str:
    """Return the text of an error, which names the field of the page that sets credentials."""
    return str(error).replace("set them in its settings", "set them in the field Headers")


def _describe_result(result: Mapping[str, Any]) -> str:
    task = result.get("task")
    if not isinstance(task, dict):
        return "the agent answered with a message"
    status = task.get("status")
    state = str(status.get("state") if isinstance(status, dict) else None)[:50]
    # The same words as in a stream.
    with suppress(ValueError):
        state = state_name(task_pb2.TaskState.Value(state))
    return f"the agent answered with task {str(task.get('id'))[:100]} in state {state}"
