"""Makes an agent's card of what the mesh knows of it and what this bridge offers for it."""

from typing import TYPE_CHECKING

from trunkline.client import Directory
from trunkline.errors import UnsupportedOperationError
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.errors import UNAUTHENTICATED, WireError
from trunkline_bridge.inbound.caller import Access, Caller
from trunkline_bridge.inbound.cards import RESUME_EXTENSION
from trunkline_bridge.inbound.cards.endpoints import Endpoints, check_origin, interfaces, is_origin
from trunkline_bridge.projection import Links
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.wire.json_values import Json

if TYPE_CHECKING:
    from trunkline_bridge.inbound.cards.signing import CardSigner

_RESUME_DESCRIPTION = (
    "Events of streams carry ids. SubscribeToTask, or a streamed message that is sent again, goes "
    "on behind the event that Last-Event-ID names (over gRPC in the metadata), also when the task "
    "has ended. A request that activates the extension is submitted at most once per message id; "
    "sent again, it attaches to its task."
)


class Cards:
    """Cards as the registry has them now, in the core model: A2A v1.0's."""

    def __init__(
        self,
        directory: Directory,
        settings: BridgeSettings,
        access: Access,
        endpoints: Endpoints,
        signer: "CardSigner | None" = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._security = access.security
        self._endpoints = endpoints
        self._signer = signer

    @property
    def public_keys(self) -> Json | None:
        """The JWKS that verifies the cards; None: they aren't signed."""
        return self._signer.public_keys if self._signer else None

    def public(self, agent: str, *, origin: str) -> agent_card_pb2.AgentCard:
        """Return what anybody may read; with no name, the default agent at the bridge's own URL.

        `origin` is the scheme and host that the caller used, if it is known.

        Raises:
            AgentNotFoundError: no living host has it.
            WireError: the caller used no host's name.
        """
        base_url = self._base_url(origin)
        return self._signed(self._card(agent, base_url), base_url)

    def extended(self, caller: Caller) -> agent_card_pb2.AgentCard:
        """Return what those may read who have said who they are.

        Raises:
            AgentNotFoundError: no living host has it.
            UnsupportedOperationError: this bridge knows nobody, so there is none.
            WireError: the caller has not said who it is (UNAUTHENTICATED).
        """
        if self._security.is_open:
            problem = "nobody is known here, so agents have one card only, the public one"
            raise UnsupportedOperationError("GetExtendedAgentCard", problem)
        if not caller.is_authenticated:
            text = "the extended card is for callers that say who they are; send credentials"
            raise WireError(UNAUTHENTICATED, text, challenge=self._security.challenge)
        is_default = caller.agent == self._settings.default_agent
        base_url = self._base_url(caller.origin)
        card = self._card("" if is_default else caller.agent, base_url)
        card.skills.extend(self._directory.agent(caller.agent).extended_skills)
        return self._signed(card, base_url)

    def _card(self, agent: str, base_url: str) -> agent_card_pb2.AgentCard:
        at_root = not agent
        agent = agent or self._settings.default_agent
        card = agent_card_pb2.AgentCard()
        card.CopyFrom(self._directory.agent(agent).card)
        card.ClearField("supported_interfaces")
        card.supported_interfaces.extend(
            interfaces(
                agent,
                base_url=base_url,
                grpc=self._endpoints.grpc_seen_from(base_url),
                is_default=agent == self._settings.default_agent,
                at_root=at_root,
            )
        )
        self._declare(card)
        return card

    def _declare(self, card: agent_card_pb2.AgentCard) -> None:
        """Say what the endpoint can do, and what it asks of callers."""
        card.capabilities.Clear()
        card.capabilities.streaming = True
        card.capabilities.push_notifications = True
        card.capabilities.extended_agent_card = not self._security.is_open
        card.capabilities.extensions.add(uri=RESUME_EXTENSION, description=_RESUME_DESCRIPTION)
        card.ClearField("security_schemes")
        for name, scheme in self._security.schemes.items():
            card.security_schemes[name].CopyFrom(scheme)
        card.ClearField("security_requirements")
        card.security_requirements.extend(self._security.requirements)

    def links(self, origin: str) -> Links:
        """Return where files are for a caller that used this scheme and host, if that is known."""
        if self._settings.public_url:
            return Links(self._settings.public_url.rstrip("/"))
        return Links(origin if is_origin(origin) else self._endpoints.http)

    def _base_url(self, origin: str) -> str:
        if self._settings.public_url:
            return self._settings.public_url.rstrip("/")
        # Whoever asks could else have our signature on a card that leads elsewhere.
        if self._signer is not None:
            return self._endpoints.http
        # Over gRPC a caller doesn't say by which name it found us.
        return check_origin(origin) if origin else self._endpoints.http

    def _signed(self, card: agent_card_pb2.AgentCard, base_url: str) -> agent_card_pb2.AgentCard:
        card.ClearField("signatures")
        if self._signer is not None:
            self._signer.sign(card, base_url=base_url)
        return card


def open_signer(settings: BridgeSettings) -> "CardSigner | None":
    """Return what signs cards, if anything does. ConfigurationError: the key can't be used."""
    if settings.card_key is None:
        return None
    # Only those who sign pay for cryptography.
    from trunkline_bridge.inbound.cards.signing import CardSigner

    return CardSigner(settings.card_key, settings.card_key_id)
