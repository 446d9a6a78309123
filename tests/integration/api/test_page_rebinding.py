"""Names that lead elsewhere after they were checked: the inspector connects to no such address."""

from collections.abc import Sequence

from harness.remote import scripted_agent as remote
from harness.remote.scripted_agent import scripted_agent
from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard
from trunkline_bridge.api.page.binding import PageEvent
from trunkline_bridge.api.page.inspection import Inspection, InspectRequest, Report

PUBLIC = "93.184.215.14"


class Rebinding:
    """A name server whose answers for one name change."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)

    async def resolve(self, _host: str) -> Sequence[str]:
        """Return the next address; the last one for every further look-up."""
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


async def inspect(request: InspectRequest, guard: AddressGuard) -> list[PageEvent]:
    report = Report()
    await Inspection(request, guard, report).run()
    events: list[PageEvent] = []
    while (event := report.events.get_nowait()) is not None:
        events.append(event)
    return events


async def test_an_address_is_checked_again_for_the_connection() -> None:
    async with scripted_agent() as agent:
        port = agent.url.rpartition(":")[2]
        request = InspectRequest(f"https://changes.example:{port}/", "card")
        names = Rebinding(PUBLIC, "127.0.0.1")
        events = await inspect(request, AddressGuard(resolve=names.resolve))
        assert [event.data["ok"] for event in events if event.type == "step"] == [True, False]
        assert not agent.calls


async def test_an_allowed_name_is_called_at_the_address_that_was_looked_up() -> None:
    async with scripted_agent() as agent:
        host = f"changes.example:{agent.url.rpartition(':')[2]}"
        agent.card["supportedInterfaces"][0]["url"] = f"http://{host}"
        agent.on("SendMessage", remote.result(remote.task("COMPLETED")))
        # The system's own names don't know it.
        guard = AddressGuard((host,), Rebinding("127.0.0.1").resolve)
        events = await inspect(InspectRequest(f"http://{host}", "send", "hi"), guard)
        assert events[-1].data == {"ok": True}, events
        assert agent.find_requests("SendMessage")


async def test_grpc_gets_an_address_that_was_checked() -> None:
    async with scripted_agent() as agent:
        host = f"changes.example:{agent.url.rpartition(':')[2]}"
        agent.card["supportedInterfaces"] = [
            {
                "url": "grpcs://changes.example:9443",
                "protocolBinding": "GRPC",
                "protocolVersion": "1.0",
            }
        ]
        # The look-ups for the card's address and its connection, and for the interface.
        names = Rebinding("127.0.0.1", "127.0.0.1", PUBLIC, "127.0.0.1")
        guard = AddressGuard((host,), names.resolve)
        events = await inspect(InspectRequest(f"http://{host}", "send", "hi"), guard)
        *before, refused = [event.data for event in events if event.type == "step"]
        assert all(step["ok"] for step in before), before
        assert refused["name"] == "address"
        assert "reachable from the public internet" in refused["detail"]
        assert names.answers == ["127.0.0.1"]
