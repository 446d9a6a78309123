"""The headers of requests to a participant, with its credentials from variables and files."""

import base64
import logging
import os
from pathlib import Path

from trunkline.a2a_client.settings import check_header_value
from trunkline.errors import ConfigurationError
from trunkline.network import is_this_machine
from trunkline.settings import ParticipantSettings

logger = logging.getLogger(__name__)

_MAX_SECRET_BYTES = 64 * 1024


def build_headers(name: str, settings: ParticipantSettings) -> dict[str, str]:
    """Return the headers of each request, by names in lower case.

    Raises:
        ConfigurationError: a secret is missing, is given twice, or can't be sent.
    """
    where = f"participant.{name}"
    headers = {header.lower(): value for header, value in settings.headers.items()}
    secrets: dict[str, str] = {}
    for header, variable in settings.headers_env.items():
        secrets[header.lower()] = _read(where, variable, None)
    for header, file in settings.headers_file.items():
        secrets[header.lower()] = _read(where, "", Path(file).expanduser())
    if token := _read(where, settings.token_env, settings.token_file):
        secrets["authorization"] = f"Bearer {token}"
    if key := _read(where, settings.api_key_env, settings.api_key_file):
        secrets[settings.api_key_header.lower()] = key
    if settings.username:
        if "authorization" in secrets:
            raise ConfigurationError(where, "give a token or a user, not both")
        password = _read(where, settings.password_env, settings.password_file)
        pair = f"{settings.username}:{password}".encode()
        secrets["authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
    headers |= secrets
    for header, value in headers.items():
        check_header_value(value, where, f"the value of {header}")
    is_plain = settings.url.startswith(("http:", "ws:"))
    if secrets and is_plain and not is_this_machine(settings.url.replace("ws:", "http:", 1)):
        logger.warning("participant.credentials_not_encrypted", extra={"where": where})
    return headers


def _read(where: str, variable: str, file: Path | None) -> str:
    """Return the secret of a variable or a file; empty if neither is named."""
    if variable and file is not None:
        raise ConfigurationError(where, f"give the variable {variable} or the file, not both")
    if variable:
        secret = os.environ.get(variable, "").strip()
        if not secret:
            problem = f"the variable {variable}, which holds its credentials, is not set"
            raise ConfigurationError(where, problem)
        return secret
    if file is None:
        return ""
    try:
        with file.open("rb") as stream:
            secret = stream.read(_MAX_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigurationError(where, f"{file} can't be read: {reason}") from None
    if not secret:
        raise ConfigurationError(where, f"{file}, which holds its credentials, is empty")
    return secret
