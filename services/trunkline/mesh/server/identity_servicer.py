"""The servicer of trunkline.v1.IdentityService: certificates for processes that join a mesh."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import grpc

from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.issuing import LIFETIME, load_authority
from trunkline.core.identity.join_records import JoinRecords
from trunkline.core.identity.names import Identity
from trunkline.core.identity.rotation import read_offer
from trunkline.errors import InvalidArgumentError
from trunkline.mesh.server.authorization import caller
from trunkline.v1 import identity_service_pb2, identity_service_pb2_grpc

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from trunkline.core.identity.certificates import CertificateAuthority
    from trunkline.core.identity.tokens import TokenUse

_Params = ParamSpec("_Params")
_Checked = TypeVar("_Checked")


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Issues certificates with the root in a folder."""

    def __init__(self, folder: IdentityFolder, records: JoinRecords) -> None:
        self._folder = folder
        self._records = records

    async def Join(
        self,
        request: identity_service_pb2.JoinRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> identity_service_pb2.JoinResponse:
        join = await asyncio.to_thread(self._verify, request)
        await self._records.redeem_token(join.token, join.public_key)
        certificate = await self._issue(join.authority, join.identity, join.public_key)
        return identity_service_pb2.JoinResponse(certificate=certificate)

    async def Renew(
        self,
        request: identity_service_pb2.RenewRequest,
        _context: grpc.aio.ServicerContext[Any, Any],
    ) -> identity_service_pb2.RenewResponse:
        authority, public_key, roots = await asyncio.to_thread(self._read_renewal, request)
        return identity_service_pb2.RenewResponse(
            certificate=await self._issue(authority, caller.get(), public_key), roots=roots
        )

    def _verify(self, request: identity_service_pb2.JoinRequest) -> "_Join":
        from trunkline.core.identity.certificates import name_instance, read_signing_request
        from trunkline.core.identity.tokens import verify_token

        authority = load_authority(self._folder)
        # Anybody may call: the token is checked before anything that takes longer.
        token = verify_token(authority, request.token)
        # A malformed request must not use up the token.
        public_key = _check(read_signing_request, request.signing_request)
        identity = replace(token.identity, instance=name_instance(public_key))
        return _Join(authority, token, identity, public_key)

    def _read_renewal(
        self, request: identity_service_pb2.RenewRequest
    ) -> tuple["CertificateAuthority", "ec.EllipticCurvePublicKey", str]:
        from trunkline.core.identity.certificates import read_signing_request

        public_key = _check(read_signing_request, request.signing_request)
        return load_authority(self._folder), public_key, read_offer(self._folder).decode()

    async def _issue(
        self,
        authority: "CertificateAuthority",
        identity: Identity,
        public_key: "ec.EllipticCurvePublicKey",
    ) -> str:
        # Processes of this user have no instance.
        if identity.instance:
            await self._records.record_certificate(identity, lifetime_s=LIFETIME.total_seconds())
        certificate = await asyncio.to_thread(
            _check, authority.issue, identity, public_key, LIFETIME
        )
        return certificate.decode()


class _Join(NamedTuple):
    """A request to join that is valid, unless its token is used up."""

    authority: "CertificateAuthority"
    token: "TokenUse"
    identity: Identity
    public_key: "ec.EllipticCurvePublicKey"


def _check(
    function: Callable[_Params, _Checked], *args: _Params.args, **kwargs: _Params.kwargs
) -> _Checked:
    """Call a function whose ValueError means that the signing request is not valid."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        raise InvalidArgumentError("signing_request", str(error)) from error
