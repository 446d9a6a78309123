"""The client's side of joining: a first certificate by a token, and the next ones by renewal."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import grpc

from trunkline.core.identity.credentials import MeshCredentials
from trunkline.core.identity.folder import IdentityFolder
from trunkline.core.identity.names import MESH_NAME
from trunkline.errors import (
    ConfigurationError,
    PeerProtocolError,
    PeerUnavailableError,
    UnauthenticatedError,
)
from trunkline.v1 import identity_service_pb2, identity_service_pb2_grpc

_Response = TypeVar("_Response")

_CALL_S: Final = 10.0
_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", MESH_NAME),
    # The mesh's own traffic does not go through a proxy of the environment.
    ("grpc.enable_http_proxy", 0),
)


def join(folder: IdentityFolder, token: str) -> None:
    """Get a certificate by a join token, and write it to a folder.

    It blocks up to ten seconds for each registry of the token.

    Raises:
        ConfigurationError: it is not a join token, or the folder belongs to a mesh of this user.
        UnauthenticatedError: the token has expired or is used up.
        PeerUnavailableError: no registry answers.
    """
    from trunkline.core.identity.certificates import create_signing_request
    from trunkline.core.identity.tokens import read_token

    content = read_token(token)
    if folder.has_root and folder.read_join_addresses():
        # A root that never served was made by a process that was started before it joined.
        problem = "is of a mesh that you run, so your processes are on it without a token"
        raise ConfigurationError(f"identity folder {folder.path}", problem)
    request, key = create_signing_request()
    credentials = grpc.ssl_channel_credentials(content.roots)
    joining = identity_service_pb2.JoinRequest(token=token, signing_request=request)

    _, response = _call_first(
        content.join_addresses, credentials, lambda stub: stub.Join(joining, timeout=_CALL_S)
    )
    folder.create()
    with folder.lock():
        folder.root_key.unlink(missing_ok=True)
        folder.write(folder.roots, content.roots)
        folder.write(folder.certificate, response.certificate.encode() + key)


def renew(folder: IdentityFolder, credentials: MeshCredentials, registries: Sequence[str]) -> None:
    """Replace the certificate in a folder by a new one, from the first registry that answers.

    It blocks up to ten seconds for each.

    Raises:
        UnauthenticatedError: the mesh does not accept the current certificate.
        PeerUnavailableError: no registry answers.
        PeerProtocolError: it answers with a certificate that is not ours.
    """
    from trunkline.core.identity.certificates import (
        check_renewed,
        check_roots,
        create_signing_request,
    )

    request, key = create_signing_request()
    renewal = identity_service_pb2.RenewRequest(signing_request=request)

    mesh, response = _call_first(
        registries,
        credentials.channel_credentials(),
        lambda stub: stub.Renew(renewal, timeout=_CALL_S),
    )
    certificate = response.certificate.encode()
    with folder.lock():
        current_roots = folder.roots.read_bytes()
        try:
            # A registry of an earlier version sends no roots.
            roots = check_roots(response.roots.encode() or current_roots, current_pem=current_roots)
            check_renewed(
                certificate,
                former_pem=folder.certificate.read_bytes(),
                key_pem=key,
                roots_pem=roots,
            )
        except ValueError as error:
            raise PeerProtocolError(mesh, f"its new certificate is not valid: {error}") from error
        if roots != current_roots:
            folder.write(folder.roots, roots)
        folder.write(folder.certificate, certificate + key)


def _call_first(
    addresses: Sequence[str],
    credentials: grpc.ChannelCredentials,
    call: Callable[[identity_service_pb2_grpc.IdentityServiceStub], _Response],
) -> tuple[str, _Response]:
    """Call the first registry that answers; return its address and its response.

    Raises:
        UnauthenticatedError: it refuses the call.
        PeerUnavailableError: no registry answers.
    """
    problem: PeerUnavailableError | None = None
    for address in addresses:
        with grpc.secure_channel(address, credentials, options=_OPTIONS) as channel:
            try:
                return address, call(identity_service_pb2_grpc.IdentityServiceStub(channel))
            except grpc.RpcError as error:
                converted = _convert(error, address)
                if isinstance(converted, UnauthenticatedError):
                    raise converted from error
                problem = problem or converted
    raise problem or PeerUnavailableError("the mesh", "it has no address")


def _convert(error: grpc.RpcError, peer: str) -> UnauthenticatedError | PeerUnavailableError:
    if not isinstance(error, grpc.Call):
        return PeerUnavailableError(peer, "the call failed")
    problem = error.details() or error.code().name
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return UnauthenticatedError(f"{peer} refuses the token or the certificate")
    return PeerUnavailableError(peer, problem)
