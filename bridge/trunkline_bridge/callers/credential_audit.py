"""Records refused credentials in the audit log."""

from trunkline.a2a_wire.errors import WireError
from trunkline.audit import Action, Actor, ActorKind, AuditLog, outcome_of
from trunkline_bridge.callers.caller import (
    Authenticator,
    Caller,
    CallerIdentity,
    SecurityRequirements,
    ServiceParameters,
)


def caller_actor(caller: Caller | CallerIdentity, address: str = "") -> Actor:
    """Return the actor of a caller's records."""
    return Actor(
        kind=caller.kind,
        account=caller.account,
        name=caller.name,
        key_id=caller.key_id,
        address=caller.address if isinstance(caller, Caller) else address,
    )


def record_refusals(authenticator: Authenticator, audit: AuditLog | None) -> Authenticator:
    """Return the authenticator, which also records refusals if there is an audit log."""
    return authenticator if audit is None else _RecordingAuthenticator(authenticator, audit)


class _RecordingAuthenticator:
    """An authenticator that records the credentials that another one refuses."""

    def __init__(self, authenticator: Authenticator, audit: AuditLog) -> None:
        self._authenticator = authenticator
        self._audit = audit

    @property
    def security(self) -> SecurityRequirements:
        return self._authenticator.security

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        return self._authenticator.has_credentials(parameters)

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        try:
            return await self._authenticator.authenticate(parameters)
        except WireError as error:
            self._audit.record_refusal(
                Action.CALLER_AUTHENTICATE,
                Actor(kind=ActorKind.ANONYMOUS, address=parameters.peer.address),
                outcome=outcome_of(error.kind.reason),
            )
            raise
