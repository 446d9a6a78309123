"""The hash chains over the rows of a journal's events, and their signed heads.

Each row of `commits`, `settled` and `folds` is a link: it has a number, and the SHA-256 over the
hash of the link before it and its own content as stored. Settling and retention delete rows: a
signed gap then stands for each run of deleted links, with the hash of the last one. The last links
of the three chains are signed with each change. Commits alone are too frequent for that: they are
signed at the next renewal of the lease, at the next maintenance step, and at the close.
"""

import contextlib
import hashlib
import json
import logging
import sqlite3
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

logger = logging.getLogger(__name__)

COMMITS: Final = "commits"
SETTLED: Final = "settled"
FOLDS: Final = "folds"
CHAINS: Final = (COMMITS, SETTLED, FOLDS)

CHAIN_TABLES: Final = (
    """CREATE TABLE chain_gaps (
        chain TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        hash BLOB NOT NULL,
        signature BLOB NOT NULL,
        PRIMARY KEY (chain, first),
        UNIQUE (chain, last)
    ) WITHOUT ROWID""",
    """CREATE TABLE chain_head (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        content TEXT NOT NULL,
        signature BLOB NOT NULL
    )""",
)

_NUMBER: Final = struct.Struct(">QI")


class Signer(Protocol):
    """Signs, and verifies signatures."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether a signature is valid."""
        ...


class Link(NamedTuple):
    """The number and the hash of a row. Number 0: no row."""

    number: int
    hash: bytes

    def follow(self, content: bytes | bytearray, place: str = "") -> "Link":
        """Return the link of the next row. `place` has its other columns that are hashed."""
        encoded = place.encode()
        # The length of the place separates it from the content.
        prefix = self.hash + _NUMBER.pack(self.number + 1, len(encoded)) + encoded
        digest = hashlib.sha256(prefix)
        digest.update(content)
        return Link(self.number + 1, digest.digest())


class Gap(NamedTuple):
    """A run of deleted links."""

    first: int
    last: int
    hash: bytes
    """The hash of the last one."""
    signature: bytes

    def message(self, journal_id: str, chain: str) -> bytes:
        """Return the text that is signed."""
        text = f"trunkline gap {journal_id} {chain} {self.first} {self.last} {self.hash.hex()}"
        return text.encode()


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The signed heads of a journal's chains."""

    journal_id: str
    links: Mapping[str, Link]
    time_ns: int
    """The wall time of the signature in nanoseconds since 1970."""
    is_closed: bool = False
    """The journal was closed: there are no later links."""
    note: str = ""
    """A problem with an earlier head, which stays: it was accepted without a valid signature."""

    def to_json(self) -> str:
        """Return the text that is signed."""
        links = {chain: [link.number, link.hash.hex()] for chain, link in self.links.items()}
        table = {
            "journal": self.journal_id,
            "links": links,
            "time_ns": self.time_ns,
            "closed": self.is_closed,
            "note": self.note,
        }
        return json.dumps(table, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "ChainHead":
        """Parse the signed text. It raises ValueError, TypeError or KeyError for other texts."""
        table = json.loads(text)
        links = {
            chain: Link(int(number), bytes.fromhex(digest))
            for chain, (number, digest) in table["links"].items()
        }
        return cls(
            table["journal"], links, int(table["time_ns"]), bool(table["closed"]), table["note"]
        )


def genesis(journal_id: str, chain: str) -> Link:
    """Return the link before the first row."""
    return Link(0, hashlib.sha256(f"trunkline chain {journal_id} {chain}".encode()).digest())


def commit_place(commit_id: int) -> str:
    """Return the place of a row of `commits`, to which its encryption is bound."""
    return f"commits {commit_id}"


def settled_place(task_id: str, first_sequence: int, last_sequence: int) -> str:
    """Return the place of a row of `settled`. It is part of the row's hash."""
    return f"settled {task_id} {first_sequence} {last_sequence}"


def stray_place(task_id: str) -> str:
    """Return the place of a row of `stray_users`, whose rows have no chain."""
    return f"stray_users {task_id}"


def fold_place(task_id: str, epoch: int, forwarded: str) -> str:
    """Return the place of a row of `folds`. It is part of the row's hash."""
    return f"folds {task_id} {epoch} {forwarded}"


class HashChains:
    """The chains of an open journal. Changes belong to the caller's transaction."""

    def __init__(self, journal_id: str, signer: Signer | None) -> None:
        """Without a signer, the heads and gaps have no signatures."""
        self._journal_id = journal_id
        self._signer = signer
        self._links = {chain: genesis(journal_id, chain) for chain in CHAINS}
        self._signed: Mapping[str, Link] = {}
        self._note = ""

    def load(self, connection: sqlite3.Connection) -> ChainHead | None:
        """Continue after the last links in the file, and return the signed head.

        Without a head, the journal is new or of an earlier version, and its chains begin here.

        Raises:
            ValueError, TypeError, KeyError: the head is damaged.
        """
        stored = read_head(connection)
        if stored is None:
            self._start(connection)
            return None
        head, content, signature = stored
        self._note = head.note
        if self._signer is not None and not self._signer.verify(signature, content.encode()):
            self._note = self._note or "its head had no valid signature when a host opened it"
            logger.error("journal.signature_invalid", extra={"journal": self._journal_id})
        self._links.update(head.links)
        # The heads of the other chains are signed with each change.
        row = connection.execute("SELECT id, hash FROM commits ORDER BY id DESC LIMIT 1").fetchone()
        if row is not None and row[0] > self._links[COMMITS].number:
            self._links[COMMITS] = Link(*row)
        return head

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Forget the links of the block if it fails."""
        before = dict(self._links)
        try:
            yield
        except BaseException:
            self._links, self._signed = before, {}
            raise

    def next_number(self, chain: str) -> int:
        """Return the number of the next row."""
        return self._links[chain].number + 1

    def follow(self, chain: str, content: bytes | bytearray, place: str = "") -> Link:
        """Return the link of the next row. `add` must follow when the row is written."""
        return self._links[chain].follow(content, place)

    def add(self, chain: str, link: Link) -> None:
        """Record that the row of the next link is written."""
        self._links[chain] = link

    def remove(self, connection: sqlite3.Connection, chain: str, links: Iterable[Link]) -> None:
        """Replace links by gaps. The caller deletes their rows."""
        for run in _runs(sorted(links)):
            self._add_gap(connection, chain, run)

    def sign(self, connection: sqlite3.Connection, *, epoch: int, is_closed: bool = False) -> None:
        """Sign the heads if they have changed, and write them, unless the epoch has changed."""
        if self._links == self._signed and not is_closed:
            return
        self._signed = dict(self._links)
        head = ChainHead(self._journal_id, self._signed, time.time_ns(), is_closed, self._note)
        content = head.to_json()
        connection.execute(
            "INSERT OR REPLACE INTO chain_head SELECT 1, ?, ? "
            "WHERE EXISTS (SELECT 1 FROM meta WHERE epoch = ?)",
            (content, self._sign(content.encode()), epoch),
        )

    def _start(self, connection: sqlite3.Connection) -> None:
        """Link all rows, which have no hashes yet."""
        if connection.execute("SELECT 1 FROM commits WHERE hash != x'' LIMIT 1").fetchone():
            raise ValueError("the head of the chains is missing")
        ids = connection.execute("SELECT id FROM commits ORDER BY id").fetchall()
        for (commit_id,) in ids:
            last = self._links[COMMITS]
            if commit_id > last.number + 1:
                # Settling deleted the commits between them.
                gap = Gap(last.number + 1, commit_id - 1, last.hash, b"")
                self._add_gap(connection, COMMITS, gap)
                self._links[COMMITS] = Link(gap.last, gap.hash)
            (payload,) = connection.execute(
                "SELECT payload FROM commits WHERE id = ?", (commit_id,)
            ).fetchone()
            link = self.follow(COMMITS, payload)
            connection.execute("UPDATE commits SET hash = ? WHERE id = ?", (link.hash, commit_id))
            self.add(COMMITS, link)
        for (rowid,) in connection.execute("SELECT rowid FROM settled ORDER BY rowid").fetchall():
            payload, *columns = connection.execute(
                "SELECT payload, task_id, first_sequence, last_sequence FROM settled "
                "WHERE rowid = ?",
                (rowid,),
            ).fetchone()
            link = self.follow(SETTLED, payload, settled_place(*columns))
            connection.execute(
                "UPDATE settled SET number = ?, hash = ? WHERE rowid = ?", (*link, rowid)
            )
            self.add(SETTLED, link)
        for (rowid,) in connection.execute("SELECT rowid FROM folds ORDER BY rowid").fetchall():
            snapshot, *columns = connection.execute(
                "SELECT snapshot, task_id, epoch, forwarded FROM folds WHERE rowid = ?", (rowid,)
            ).fetchone()
            link = self.follow(FOLDS, snapshot, fold_place(*columns))
            connection.execute(
                "UPDATE folds SET number = ?, hash = ? WHERE rowid = ?", (*link, rowid)
            )
            self.add(FOLDS, link)

    def _add_gap(self, connection: sqlite3.Connection, chain: str, run: Gap) -> None:
        """Add a gap, merged with the gaps right before and after it."""
        neighbours = connection.execute(
            "SELECT first, last, hash FROM chain_gaps WHERE chain = ?1 AND last = ?2 "
            "UNION ALL SELECT first, last, hash FROM chain_gaps WHERE chain = ?1 AND first = ?3",
            (chain, run.first - 1, run.last + 1),
        ).fetchall()
        for first, last, digest in neighbours:
            connection.execute(
                "DELETE FROM chain_gaps WHERE chain = ? AND first = ?", (chain, first)
            )
            if last > run.last:
                run = run._replace(last=last, hash=digest)
            else:
                run = run._replace(first=first)
        run = run._replace(signature=self._sign(run.message(self._journal_id, chain)))
        connection.execute("INSERT INTO chain_gaps VALUES (?, ?, ?, ?, ?)", (chain, *run))

    def _sign(self, message: bytes) -> bytes:
        return self._signer.sign(message) if self._signer is not None else b""


def _runs(links: Iterable[Link]) -> Iterator[Gap]:
    """Yield the runs of consecutive links, in order, without signatures."""
    run: Gap | None = None
    for number, digest in links:
        if run is not None and number == run.last + 1:
            run = run._replace(last=number, hash=digest)
            continue
        if run is not None:
            yield run
        run = Gap(number, number, digest, b"")
    if run is not None:
        yield run


def read_gaps(connection: sqlite3.Connection, chain: str) -> dict[int, Gap]:
    """Return the gaps of a chain by their first number."""
    rows = connection.execute(
        "SELECT first, last, hash, signature FROM chain_gaps WHERE chain = ? ORDER BY first",
        (chain,),
    )
    return {row[0]: Gap(*row) for row in rows}


def read_head(connection: sqlite3.Connection) -> tuple[ChainHead, str, bytes] | None:
    """Return the heads, their signed text, and its signature. None: there are none.

    Raises:
        ValueError, TypeError, KeyError: they are damaged.
    """
    row = connection.execute("SELECT content, signature FROM chain_head").fetchone()
    return None if row is None else (ChainHead.from_json(row[0]), row[0], row[1])
