"""Signs and verifies the statements that name the users of calls, each once for many calls."""

import base64
import json
from collections import OrderedDict
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from trunkline.core.identity.credentials import MeshCredentials
from trunkline.core.identity.names import SIGNERS, Role
from trunkline.core.runtime import load_in_thread
from trunkline.core.users import User
from trunkline.errors import ConfigurationError, UserNotProvenError

# The bytes of a statement stay the same for this time, so that a process that has verified it
# finds it in its cache.
_REUSE_S: Final = 300
_MAX_USERS: Final = 10_000


def has_ended(statement: str) -> bool:
    """Return True if a statement is not valid any more. A malformed one counts as ended."""
    return _read_end(statement) <= datetime.now(UTC).timestamp()


@lru_cache(maxsize=1024)
def _read_end(statement: str) -> float:
    """Return the Unix time of a statement's end. It imports no cryptography."""
    try:
        _, claims, _ = statement.split(".")
        return float(json.loads(base64.urlsafe_b64decode(f"{claims}=="))["exp"])
    except (ValueError, TypeError, KeyError):
        return 0


class StatementSigner:
    """Signs statements of users for a process that may authenticate them."""

    def __init__(self, credentials: MeshCredentials) -> None:
        self._credentials = credentials
        self._signed: OrderedDict[User, tuple[float, str]] = OrderedDict()
        self.role: Role = credentials.identity.role

    @property
    def may_sign(self) -> bool:
        """True if the mesh accepts statements of this process."""
        return self.role in SIGNERS

    async def sign(self, user: User) -> str:
        """Return a statement of a user: a new one, or the same for five minutes.

        Raises:
            ConfigurationError: the certificate's key can't sign statements.
        """
        now = datetime.now(UTC).timestamp()
        signed = self._signed.get(user)
        # A statement of the future is refused: the clock was ahead when it was signed.
        if signed is not None and signed[0] <= now < signed[0] + _REUSE_S:
            return signed[1]
        statement = await load_in_thread(self._sign, user, int(now))
        self._signed[user] = (now, statement)
        self._signed.move_to_end(user)
        while len(self._signed) > _MAX_USERS:
            self._signed.popitem(last=False)
        return statement

    def _sign(self, user: User, issued_at: int) -> str:
        from trunkline.core.identity.statement_tokens import sign_statement

        certificate, key = self._credentials.read_pem()
        try:
            return sign_statement(
                user, certificate_pem=certificate, key_pem=key, issued_at=issued_at
            )
        except ValueError as error:
            raise ConfigurationError("identity", f"can't sign for users: {error}") from error


class StatementVerifier:
    """Verifies statements of users. A known statement costs a look-up."""

    def __init__(self, credentials: MeshCredentials) -> None:
        self._credentials = credentials
        self._known: OrderedDict[str, tuple[int, User]] = OrderedDict()
        # The files and the revocations that the known statements were verified by.
        self._verified_by = (credentials.generation, credentials.revoked)

    def find(self, statement: str) -> User | None:
        """Return the user of a statement that was verified before and is still valid."""
        current = (self._credentials.generation, self._credentials.revoked)
        if self._verified_by != current:
            self._verified_by = current
            self._known.clear()
        known = self._known.get(statement)
        if known is None or known[0] <= datetime.now(UTC).timestamp():
            return None
        return known[1]

    async def verify(self, statement: str) -> User:
        """Return the user that a statement names.

        Raises:
            UserNotProvenError: no bridge or member of this mesh signed it, or it has ended.
        """
        known = self.find(statement)
        if known is not None:
            return known
        ends_at, user = await load_in_thread(self._verify, statement)
        self._known[statement] = (ends_at, user)
        while len(self._known) > _MAX_USERS:
            self._known.popitem(last=False)
        return user

    def _verify(self, statement: str) -> tuple[int, User]:
        from trunkline.core.identity.statement_tokens import verify_statement

        try:
            user, signer, ends_at = verify_statement(
                statement,
                mesh=self._credentials.identity.mesh,
                roots_pem=self._credentials.read_roots(),
                identify=self._credentials.identify,
            )
            if signer.instance in self._credentials.revoked:
                raise ValueError("its signer is revoked")
        except ValueError as error:
            problem = f"the statement of the call's user is not valid: {error}"
            raise UserNotProvenError(problem) from error
        return ends_at, user
