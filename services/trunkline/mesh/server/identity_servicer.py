"""The servicer of trunkline.v1.IdentityService: certificates for processes that join a mesh."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import grpc

from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.issuing import LIFETIME, load_authority
from trunkline.core.identity.names import Identity
from trunkline.core.identity.revocation import record_certificate
from trunkline.core.identity.rotation import read_offer
from trunkline.errors import InvalidArgumentError
from trunkline.mesh.server.authorization import caller
from trunkline.v1 import identity_service_pb2, identity_service_pb2_grpc

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from trunkline.core.identity.certificates import CertificateAuthority

_Params = ParamSpec("_Params")
_Checked = TypeVar("_Checked")


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Issues certificates with the root in a folder."""

    def __init__(self, folder: IdentityFolder) -> None:
        self._folder = folder

    async def Join(
        self,
        request: identity_service_pb2.JoinRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> identity_service_pb2.JoinResponse:
        certificate = await asyncio.to_thread(self._join, request)
        return identity_service_pb2.JoinResponse(certificate=certificate)

    async def Renew(
        self,
        request: identity_service_pb2.RenewRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> identity_service_pb2.RenewResponse:
        return await asyncio.to_thread(self._renew, caller.get(), request)

    def _join(self, request: identity_service_pb2.JoinRequest) -> str:
        from trunkline.core.identity.certificates import name_instance, read_signing_request
        from trunkline.core.identity.tokens import redeem_token, verify_token

        authority = load_authority(self._folder)
        # Anybody may call: the token is checked before anything that takes longer.
        content = verify_token(authority, request.token)
        # A malformed request must not use up the token.
        public_key = _check(read_signing_request, request.signing_request)
        redeem_token(self._folder, content, public_key)
        identity = replace(content.identity, instance=name_instance(public_key))
        return self._issue(authority, identity, public_key)

    def _renew(
        self, identity: Identity, request: identity_service_pb2.RenewRequest
    ) -> identity_service_pb2.RenewResponse:
        from trunkline.core.identity.certificates import read_signing_request

        public_key = _check(read_signing_request, request.signing_request)
        return identity_service_pb2.RenewResponse(
            certificate=self._issue(load_authority(self._folder), identity, public_key),
            roots=read_offer(self._folder).decode(),
        )

    def _issue(
        self,
        authority: "CertificateAuthority",
        identity: Identity,
        public_key: "ec.EllipticCurvePublicKey",
    ) -> str:
        # Processes of this user have no instance.
        if identity.instance:
            record_certificate(self._folder, identity, lifetime_s=LIFETIME.total_seconds())
        return _check(authority.issue, identity, public_key, LIFETIME).decode()


def _check(
    function: Callable[_Params, _Checked], *args: _Params.args, **kwargs: _Params.kwargs
) -> _Checked:
    """Call a function whose ValueError means that the signing request is not valid."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise InvalidArgumentError("signing_request", str(error)) from error
