"""Builds the cards of agents, with the interfaces by which this bridge serves them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.protocol import PLAIN_EXTENSION, RESUME_EXTENSION, V0_3, V1_0
from trunkline.client import Directory
from trunkline.errors import UnsupportedOperationError
from trunkline.settings import Settings
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.a2a.projection import FileLinks
from trunkline_bridge.callers.caller import Authenticator, Caller
from trunkline_bridge.http.bound_addresses import BoundAddresses

if TYPE_CHECKING:
    from trunkline.a2a_wire.card_signatures import CardSigner


_RESUME_DESCRIPTION = (
    "Events of streams carry ids. SubscribeToTask, or a streamed message that is sent again, "
    "continues after the event that Last-Event-ID names (over gRPC in the metadata), also when the "
    "task has ended. A request that activates the extension is submitted at most once per message "
    "id; sent again, it attaches to its task."
)
_PLAIN_DESCRIPTION = (
    "Tasks have their statuses and exactly one artifact for each turn, the answer, streamed as far "
    "as its beginning is known. Plans, tool calls and the texts of other agents are left out."
)


def agent_interfaces(
    agent: str,
    *,
    base_url: str,
    grpc: str,
    v0_3_grpc: str,
    at_root: bool,
    versions: Sequence[str] = (V1_0, V0_3),
) -> Iterator[agent_card_pb2.AgentInterface]:
    """Yield the interfaces of an agent, the preferred first: v1.0 before v0.3.

    `at_root` gives the default agent the bridge's own URL. `grpc` is the gRPC address of all
    agents, where v1.0 names the agent by the tenant. `v0_3_grpc` is the address where a call of
    v0.3, which names no agent, reaches this one. Empty addresses have no interface.
    """
    rest_url = base_url if at_root else f"{base_url}/agents/{agent}"
    rpc_url = f"{base_url}/" if at_root else rest_url
    for version in versions:
        for url, binding in ((rpc_url, "JSONRPC"), (rest_url, "HTTP+JSON")):
            yield agent_card_pb2.AgentInterface(
                url=url, protocol_binding=binding, protocol_version=version
            )
        address, tenant = (v0_3_grpc, "") if version == V0_3 else (grpc, agent)
        if address:
            yield agent_card_pb2.AgentInterface(
                url=address, protocol_binding="GRPC", protocol_version=version, tenant=tenant
            )


class AgentCards:
    """Cards of the registered agents, as messages of A2A v1.0."""

    def __init__(
        self,
        directory: Directory,
        settings: Settings,
        authenticator: Authenticator,
        addresses: BoundAddresses,
        signer: "CardSigner | None" = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._security = authenticator.security
        self._addresses = addresses
        self._signer = signer

    @property
    def public_keys(self) -> Json | None:
        """The JWKS that verifies the cards, or None if cards are not signed."""
        return self._signer.public_keys if self._signer else None

    @property
    def has_fixed_url(self) -> bool:
        """True if cards have the same URL for all callers."""
        return bool(self._settings.public_url) or self._signer is not None

    def base_url(self, origin: str) -> str:
        """Return the URL of the bridge for a caller that used this scheme and host.

        The origin may be empty, which means that it is unknown. If cards are signed, the URL does
        not depend on the caller: a caller could otherwise get a signed card for an address of its
        choice.
        """
        if self._settings.public_url:
            return self._settings.public_url.rstrip("/")
        return self._addresses.http if self._signer is not None or not origin else origin

    def public_card(self, agent: str, *, base_url: str) -> agent_card_pb2.AgentCard:
        """Return an agent's public card; an empty name is the default agent at `base_url`.

        Raises:
            AgentNotFoundError: no live host has the agent.
        """
        return self._signed(self._card(agent, base_url), base_url)

    def extended_card(self, caller: Caller) -> agent_card_pb2.AgentCard:
        """Return the extended card, for authenticated callers.

        Raises:
            AgentNotFoundError: no live host has the agent.
            UnsupportedOperationError: there is no extended card, since all callers are anonymous.
            WireError: the caller is anonymous (UNAUTHENTICATED).
        """
        if self._security.is_anonymous_only:
            problem = "all callers are anonymous here, so agents have only the public card"
            raise UnsupportedOperationError("GetExtendedAgentCard", problem)
        if not caller.is_authenticated:
            text = "the extended card is for authenticated callers; send credentials"
            raise WireError(UNAUTHENTICATED, text, challenge=self._security.challenge)
        is_default = caller.agent == self._settings.default_agent
        base_url = self.base_url(caller.origin)
        card = self._card("" if is_default else caller.agent, base_url)
        card.skills.extend(self._directory.get_agent(caller.agent).extended_skills)
        return self._signed(card, base_url)

    def _card(self, agent: str, base_url: str) -> agent_card_pb2.AgentCard:
        at_root = not agent
        agent = agent or self._settings.default_agent
        card = agent_card_pb2.AgentCard()
        card.CopyFrom(self._directory.get_agent(agent).card)
        grpc = self._addresses.grpc_address_for(base_url)
        v0_3_grpc = self._addresses.grpc_address_for(base_url, agent=agent)
        if not v0_3_grpc and agent == self._settings.default_agent:
            v0_3_grpc = grpc
        card.ClearField("supported_interfaces")
        card.supported_interfaces.extend(
            agent_interfaces(
                agent,
                base_url=base_url,
                grpc=grpc,
                v0_3_grpc=v0_3_grpc,
                at_root=at_root,
                versions=(V1_0, V0_3),
            )
        )
        self._declare(card)
        return card

    def _declare(self, card: agent_card_pb2.AgentCard) -> None:
        """Set the capabilities and the authentication of this bridge."""
        card.capabilities.Clear()
        card.capabilities.streaming = self._settings.streaming
        card.capabilities.push_notifications = self._settings.push_notifications
        card.capabilities.extended_agent_card = not self._security.is_anonymous_only
        if self._settings.streaming:
            card.capabilities.extensions.add(uri=RESUME_EXTENSION, description=_RESUME_DESCRIPTION)
        card.capabilities.extensions.add(uri=PLAIN_EXTENSION, description=_PLAIN_DESCRIPTION)
        card.ClearField("security_schemes")
        for name, scheme in self._security.schemes.items():
            card.security_schemes[name].CopyFrom(scheme)
        card.ClearField("security_requirements")
        card.security_requirements.extend(self._security.requirements)

    def file_links(self, origin: str) -> FileLinks:
        """Return the links to files for a caller that used this scheme and host.

        The origin may be empty, which means that it is unknown.
        """
        if self._settings.public_url:
            return FileLinks(self._settings.public_url.rstrip("/"))
        return FileLinks(origin or self._addresses.http)

    def _signed(self, card: agent_card_pb2.AgentCard, base_url: str) -> agent_card_pb2.AgentCard:
        card.ClearField("signatures")
        if self._signer is not None:
            self._signer.sign(card, base_url=base_url)
        return card


def load_signer(settings: Settings) -> "CardSigner | None":
    """Return the signer of cards, or None if cards are not signed.

    Raises:
        ConfigurationError: the key is unusable.
    """
    if settings.card_key is None:
        return None
    # Imported only for signing: cryptography is slow to load.
    from trunkline.a2a_wire.card_signatures import CardSigner

    return CardSigner(settings.card_key, settings.card_key_id)
