"""The processes that joined a mesh, the revoked processes among them, and the used join tokens."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trunkline.core.identity.names import Identity
from trunkline.core.small_files import SmallFiles, update_file
from trunkline.errors import ConfigurationError, UnauthenticatedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from trunkline.core.identity.tokens import TokenUse

# Clocks of machines differ.
_TOLERANCE_S: Final = 300.0
# Longer than a connection that was opened, and a statement that was signed, with a certificate are
# valid after its end.
_REMEMBERED_S: Final = 2 * 24 * 3600.0
_JOINED: Final = "joined"
_USED_TOKENS: Final = "used-tokens"


@dataclass(frozen=True, slots=True)
class JoinedProcess:
    """A process that joined by a token."""

    instance: str
    """The last part of its SPIFFE id."""
    subject: str
    """Its role and agents, such as `agents/math`."""
    joined_at: float
    """In seconds since the epoch."""
    ends_at: float
    """The end of its latest certificate."""
    is_revoked: bool = False


class JoinRecords:
    """The records of a mesh about joining, in small files that all its registries share.

    A change is made from the latest content only, so a token is used once over all registries.
    All methods raise ConfigurationError or JournalUnavailableError if a file can't be read or
    written. A change that raises JournalUnavailableError may have been made.
    """

    def __init__(self, files: SmallFiles, folder: str = "") -> None:
        """`folder` is the path of the records in the files, with a slash at its end."""
        self._files = files
        self._joined = folder + _JOINED
        self._used_tokens = folder + _USED_TOKENS
        # The changes of one process do not meet.
        self._changing = asyncio.Lock()

    async def record_certificate(self, identity: Identity, *, lifetime_s: float) -> None:
        """Record that a process that joined gets a certificate.

        Raises:
            UnauthenticatedError: it is revoked, or its key has joined for other agents.
        """

        def record(content: bytes | None) -> bytes:
            now = datetime.now(UTC).timestamp()
            processes = self._read_processes(content)
            process = processes.get(identity.instance) or JoinedProcess(
                identity.instance, identity.subject, joined_at=now, ends_at=now
            )
            if process.is_revoked:
                raise UnauthenticatedError(f"{identity} is revoked")
            if process.subject != identity.subject:
                # A revocation by agents would miss one of the two.
                raise UnauthenticatedError(f"the key of {identity} has joined as {process.subject}")
            processes[identity.instance] = replace(process, ends_at=now + lifetime_s)
            return _write_processes(processes)

        async with self._changing:
            await update_file(self._files, self._joined, record)

    async def list_joined(self) -> list[JoinedProcess]:
        """Return the processes that have a certificate, the latest last."""
        limit = datetime.now(UTC).timestamp() - _TOLERANCE_S
        processes = self._read_processes(await self._files.read(self._joined))
        joined = [process for process in processes.values() if process.ends_at > limit]
        return sorted(joined, key=lambda process: process.joined_at)

    async def revoke(self, names: Sequence[str]) -> list[JoinedProcess]:
        """Revoke processes by instance, or by role and agents; return the newly revoked ones."""
        revoked: dict[str, JoinedProcess] = {}

        def add_revoked(content: bytes | None) -> bytes | None:
            processes = self._read_processes(content)
            # A change whose answer was lost is made again.
            revoked.update(
                (process.instance, replace(process, is_revoked=True))
                for process in processes.values()
                if not process.is_revoked and {process.instance, process.subject} & set(names)
            )
            return _write_processes(processes | revoked) if revoked else None

        async with self._changing:
            await update_file(self._files, self._joined, add_revoked)
        return list(revoked.values())

    async def redeem_token(
        self, token: "TokenUse", public_key: "ec.EllipticCurvePublicKey"
    ) -> None:
        """Count a use of a token, also across restarts. The same key may use it again.

        A process whose answer was lost repeats its request with the same key.

        Raises:
            UnauthenticatedError: it is used up.
        """
        digest = _hash_key(public_key)

        def redeem(content: bytes | None) -> bytes | None:
            uses = self._read_uses(content)
            keys = uses.setdefault(token.token_id, {"keys": [], "exp": token.ends_at})["keys"]
            if digest in keys:
                return None
            if len(keys) >= token.uses:
                raise UnauthenticatedError("the join token is used up")
            keys.append(digest)
            return json.dumps(uses).encode()

        async with self._changing:
            await update_file(self._files, self._used_tokens, redeem)

    async def revoke_token(self, token: "TokenUse") -> None:
        """Let no further process join by a token."""

        def use_up(content: bytes | None) -> bytes:
            uses = self._read_uses(content)
            use = uses.setdefault(token.token_id, {"keys": [], "exp": token.ends_at})
            use["keys"] += [""] * token.uses
            return json.dumps(uses).encode()

        async with self._changing:
            await update_file(self._files, self._used_tokens, use_up)

    async def add_from(self, former: "JoinRecords") -> None:
        """Add the records of former files: a revocation or a use in either of them counts.

        So a mesh whose store becomes a database does not accept its used tokens again.
        """
        joined = await former._files.read(former._joined)  # noqa: SLF001  of the same class
        used = await former._files.read(former._used_tokens)  # noqa: SLF001

        def add_joined(content: bytes | None) -> bytes | None:
            present = self._read_processes(content)
            merged = dict(present)
            for process in self._read_processes(joined).values():
                known = present.get(process.instance, process)
                is_revoked = known.is_revoked or process.is_revoked
                merged[process.instance] = replace(known, is_revoked=is_revoked)
            return None if merged == present else _write_processes(merged)

        def add_used(content: bytes | None) -> bytes | None:
            present, merged = self._read_uses(content), self._read_uses(content)
            for token_id, use in self._read_uses(used).items():
                known = merged.setdefault(token_id, {**use, "keys": []})
                known["keys"] = sorted((Counter(known["keys"]) | Counter(use["keys"])).elements())
            return None if merged == present else json.dumps(merged).encode()

        async with self._changing:
            await update_file(self._files, self._joined, add_joined)
            await update_file(self._files, self._used_tokens, add_used)

    async def read_joined(self) -> bytes:
        """Return the processes that joined as one text, which changes with each revocation."""
        return await self._files.read(self._joined) or b""

    def read_revoked(self, content: bytes) -> frozenset[str]:
        """Return the revoked instances in a text of `read_joined`."""
        processes = self._read_processes(content or None).values()
        return frozenset(process.instance for process in processes if process.is_revoked)

    def _read_processes(self, content: bytes | None) -> dict[str, JoinedProcess]:
        """Return the processes that could still be let in if they were forgotten, by instance."""
        if content is None:
            return {}
        limit = datetime.now(UTC).timestamp() - _REMEMBERED_S
        try:
            processes = [JoinedProcess(**entry) for entry in json.loads(content)]
        except (ValueError, TypeError) as error:
            problem = "can't be read; remove it, and revoked processes are accepted again"
            raise ConfigurationError(self._files.locate(self._joined), problem) from error
        return {process.instance: process for process in processes if process.ends_at > limit}

    def _read_uses(self, content: bytes | None) -> dict[str, Any]:
        """Return the uses of the tokens that have not expired, by their ids."""
        if content is None:
            return {}
        now = datetime.now(UTC).timestamp()
        try:
            uses: dict[str, Any] = json.loads(content)
            return {token_id: use for token_id, use in uses.items() if use["exp"] > now}
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            problem = "can't be read; remove it, and tokens that are still valid can be used again"
            raise ConfigurationError(self._files.locate(self._used_tokens), problem) from error


class RevocationList:
    """The revoked instances of a mesh."""

    def __init__(self, records: JoinRecords, on_change: Callable[[frozenset[str]], None]) -> None:
        """`on_change` gets the instances whenever they change."""
        self._records = records
        self._on_change = on_change
        self._content = b""
        self._revoked: frozenset[str] = frozenset()

    async def refresh(self) -> frozenset[str]:
        """Return the instances that are revoked now.

        Raises:
            ConfigurationError, JournalUnavailableError: the records can't be read.
        """
        content = await self._records.read_joined()
        if content != self._content:
            revoked = self._records.read_revoked(content)
            self._content = content
            if revoked != self._revoked:
                self._revoked = revoked
                self._on_change(revoked)
        return self._revoked


def _write_processes(processes: dict[str, JoinedProcess]) -> bytes:
    return json.dumps([asdict(process) for process in processes.values()]).encode()


def _hash_key(public_key: "ec.EllipticCurvePublicKey") -> str:
    from cryptography.hazmat.primitives import serialization

    key = public_key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).hexdigest()
