"""Verifies the hash chains of a journal's events; see `chain`."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self, TypeAlias

from trunkline.core.encryption import is_encrypted
from trunkline.journal.sqlite.chain import (
    CHAINS,
    COMMITS,
    SETTLED,
    ChainHead,
    Gap,
    Link,
    Signer,
    fold_place,
    genesis,
    read_gaps,
    read_head,
    settled_place,
)


def describe_change(problem: str) -> str:
    """Return the reason why a journal whose events were changed is not opened."""
    return (
        f"it is damaged, or another program changed it: {problem}; "
        "restore a copy or use another data directory"
    )


@dataclass(slots=True)
class ChainWalk:
    """Verifies one chain, link by link in the order of their numbers."""

    journal_id: str
    chain: str
    gaps: Mapping[int, Gap]
    """The gaps by their first number."""
    head: Link | None
    """The signed head. None: there is none."""
    last: Link = field(init=False)
    """The last link so far."""

    is_closed: bool = False
    """The journal was closed after the head was signed: there are no later links."""

    def __post_init__(self) -> None:
        self.last = genesis(self.journal_id, self.chain)

    @classmethod
    def start(
        cls, connection: sqlite3.Connection, journal_id: str, chain: str, head: ChainHead | None
    ) -> Self:
        """Return the walk over one chain of a journal, before its first row."""
        link = None if head is None else head.links.get(chain)
        is_closed = head is not None and head.is_closed
        return cls(journal_id, chain, read_gaps(connection, chain), link, is_closed=is_closed)

    def step(self, number: int, stored: bytes, content: bytes, place: str = "") -> str:
        """Verify a row by its stored hash. Return the problem with it, or with rows before it."""
        problem = self._skip_gaps(number)
        if number <= self.last.number or self._gap() is not None:
            return problem or f"row {number} of {self.chain} was deleted and is back"
        if number > self.last.number + 1:
            missing = self._describe(self.last.number + 1, number - 1)
            problem = problem or f"{missing} removed"
        elif self.last.follow(content, place).hash != stored:
            problem = problem or f"row {number} of {self.chain} was changed or is not in its place"
        if problem:
            self.last = Link(number, stored)
        # The chain continues from the stored hash, so that one changed row is one problem.
        return problem or self._advance(Link(number, stored))

    def finish(self) -> str:
        """Verify the end of the chain after its last row. Return the problem, or ""."""
        problem = ""
        while (gap := self._gap()) is not None:
            problem = problem or self._advance(Link(gap.last, gap.hash))
        head = self.head.number if self.head is not None else 0
        if head > self.last.number:
            return f"{self._describe(self.last.number + 1, head)} removed"
        if self.is_closed and self.last.number > head:
            return f"{self._describe(head + 1, self.last.number)} added after the close"
        return problem

    def _describe(self, first: int, last: int) -> str:
        if first == last:
            return f"row {first} of {self.chain} was"
        return f"rows {first} to {last} of {self.chain} were"

    def _gap(self) -> Gap | None:
        return self.gaps.get(self.last.number + 1)

    def _skip_gaps(self, number: int) -> str:
        problem = ""
        while (gap := self._gap()) is not None and gap.last < number:
            problem = problem or self._advance(Link(gap.last, gap.hash))
        return problem

    def _advance(self, link: Link) -> str:
        """Move on. Return the problem if the signed head is passed and does not fit."""
        before, self.last = self.last, link
        head = self.head
        if head is None or not before.number < head.number <= link.number or head == link:
            return ""
        return f"row {head.number} of {self.chain} does not fit the signed head"


@dataclass(slots=True)
class ChainReport:
    """The result of verifying the chains of a journal."""

    problems: list[str] = field(default_factory=list)
    signed_ns: int = 0
    """The wall time of the last signature in nanoseconds since 1970. 0: there is none."""
    unsigned_count: int = 0
    """The commits after the last signature."""
    encrypted_count: int = 0
    """The encrypted rows of events."""
    plain_count: int = 0
    """The other rows of events."""


def check_chains(
    connection: sqlite3.Connection, journal_id: str, signer: Signer | None
) -> ChainReport:
    """Verify all hashes and, with a signer, all signatures of a journal."""
    report = ChainReport()
    head = _check_head(connection, journal_id, signer, report)
    for chain in CHAINS:
        walk = ChainWalk.start(connection, journal_id, chain, head)
        report.problems += _check_gaps(walk, signer)
        for number, digest, content, place, task_id in _rows(connection, chain):
            if is_encrypted(content):
                report.encrypted_count += 1
            else:
                report.plain_count += 1
            if problem := walk.step(number, digest, content, place):
                near = f", at or before task {task_id}" if task_id else ""
                report.problems.append(f"{problem}{near}")
        if problem := walk.finish():
            report.problems.append(problem)
        if chain == COMMITS and walk.head is not None:
            report.unsigned_count = max(0, walk.last.number - walk.head.number)
    return report


def _check_head(
    connection: sqlite3.Connection, journal_id: str, signer: Signer | None, report: ChainReport
) -> ChainHead | None:
    try:
        stored = read_head(connection)
    except (ValueError, TypeError, KeyError, AttributeError):
        report.problems.append("the head of its hash chains was changed")
        return None
    if stored is None:
        report.problems.append("the head of its hash chains was removed")
        return None
    head, content, signature = stored
    report.signed_ns = head.time_ns if signature else 0
    if head.journal_id != journal_id:
        report.problems.append("the head of its hash chains is of another journal")
    if signer is not None and not signer.verify(signature, content.encode()):
        reason = "not of this keyring" if signature else "missing"
        report.problems.append(f"the signature of its hash chains is {reason}")
    if head.note:
        report.problems.append(head.note)
    return head


def _check_gaps(walk: ChainWalk, signer: Signer | None) -> Iterator[str]:
    for gap in walk.gaps.values():
        message = gap.message(walk.journal_id, walk.chain)
        if signer is not None and not signer.verify(gap.signature, message):
            yield (
                f"rows {gap.first} to {gap.last} of {walk.chain} are missing "
                "without a valid signature"
            )


_Row: TypeAlias = tuple[int, bytes, bytes, str, str]
"""The number, the hash, the content, the place, and the task's id, empty for commits."""


# A changed value may be a text, which SQLite could not decode.
_SELECT_COMMITS: Final = (
    "SELECT id, CAST(hash AS BLOB), CAST(payload AS BLOB) FROM commits ORDER BY id"
)


def _rows(connection: sqlite3.Connection, chain: str) -> Iterator[_Row]:
    if chain == COMMITS:
        for row in connection.execute(_SELECT_COMMITS):
            yield (*row, "", "")
    elif chain == SETTLED:
        for number, digest, payload, *place in connection.execute(
            "SELECT number, CAST(hash AS BLOB), CAST(payload AS BLOB), task_id, "
            "first_sequence, last_sequence FROM settled ORDER BY number"
        ):
            yield number, digest, payload, settled_place(*place), place[0]
    else:
        for number, digest, snapshot, *place in connection.execute(
            "SELECT number, CAST(hash AS BLOB), CAST(snapshot AS BLOB), task_id, epoch, forwarded "
            "FROM folds ORDER BY number"
        ):
            yield number, digest, snapshot, fold_place(*place), place[0]
