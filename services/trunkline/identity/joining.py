"""The client's side of joining: a first certificate by a token, and the next ones by renewal."""

from typing import Final

import grpc

from trunkline.errors import (
    ConfigurationError,
    PeerProtocolError,
    PeerUnavailableError,
    UnauthenticatedError,
)
from trunkline.identity.credentials import MeshCredentials
from trunkline.identity.folder import IdentityFolder
from trunkline.identity.names import MESH_NAME
from trunkline.v1 import identity_service_pb2, identity_service_pb2_grpc

_CALL_S: Final = 10.0
_OPTIONS: Final = (
    ("grpc.ssl_target_name_override", MESH_NAME),
    # The mesh's own traffic does not go through a proxy of the environment.
    ("grpc.enable_http_proxy", 0),
)


def join(folder: IdentityFolder, token: str) -> None:
    """Get a certificate by a join token, and write it to a folder. It blocks up to ten seconds.

    Raises:
        ConfigurationError: it is not a join token, or the folder belongs to a mesh of this user.
        UnauthenticatedError: the token has expired or is used up.
        PeerUnavailableError: the mesh does not answer.
    """
    from trunkline.identity.certificates import create_signing_request
    from trunkline.identity.tokens import read_token

    content = read_token(token)
    if folder.has_root and folder.read_join_address():
        # A root that never served was made by a process that was started before it joined.
        problem = "is of a mesh that you run, so your processes are on it without a token"
        raise ConfigurationError(f"identity folder {folder.path}", problem)
    request, key = create_signing_request()
    credentials = grpc.ssl_channel_credentials(content.roots)
    with grpc.secure_channel(content.join_address, credentials, options=_OPTIONS) as channel:
        try:
            response = identity_service_pb2_grpc.IdentityServiceStub(channel).Join(
                identity_service_pb2.JoinRequest(token=token, signing_request=request),
                timeout=_CALL_S,
            )
        except grpc.RpcError as error:
            raise _convert(error, content.join_address) from error
    folder.create()
    with folder.lock():
        folder.root_key.unlink(missing_ok=True)
        folder.write(folder.roots, content.roots)
        folder.write(folder.certificate, response.certificate.encode() + key)


def renew(folder: IdentityFolder, credentials: MeshCredentials, mesh: str) -> None:
    """Replace the certificate in a folder by a new one. It blocks up to ten seconds.

    Raises:
        UnauthenticatedError: the mesh does not accept the current certificate.
        PeerUnavailableError: the mesh does not answer.
        PeerProtocolError: it answers with a certificate that is not ours.
    """
    from trunkline.identity.certificates import (
        check_renewed,
        check_roots,
        create_signing_request,
    )

    request, key = create_signing_request()
    current = credentials.channel_credentials()
    with grpc.secure_channel(mesh, current, options=_OPTIONS) as channel:
        try:
            response = identity_service_pb2_grpc.IdentityServiceStub(channel).Renew(
                identity_service_pb2.RenewRequest(signing_request=request), timeout=_CALL_S
            )
        except grpc.RpcError as error:
            raise _convert(error, mesh) from error
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


def _convert(error: grpc.RpcError, peer: str) -> UnauthenticatedError | PeerUnavailableError:
    if not isinstance(error, grpc.Call):
        return PeerUnavailableError(peer, "the call failed")
    problem = error.details() or error.code().name
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return UnauthenticatedError(f"{peer} refuses the token or the certificate")
    return PeerUnavailableError(peer, problem)
