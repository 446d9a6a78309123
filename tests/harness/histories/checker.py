"""Reads a history against the promises. A pure function: the same history has the same verdict.

The agents write numbered pieces, each with the name of the run of their code: `1.a7 2.a7 `. A run
that is repeated on another host writes other pieces, so two hosts that both believe that they own a
task write different texts.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from harness.histories.history import Effect, Kind, Record, Request

TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELED", "REJECTED"})
_CURSOR: Final = re.compile(r"(\d+)\.(\d+)(?:-(\d+))?")
# Above the number of each event of a sequence.
_LAST: Final = 2**31
# The exit codes of a host that can't have its journal: it has lost it and ends, the next owner of a
# file kills it, or it starts while the database is away. Its process manager restarts it.
_LOST_JOURNAL: Final = frozenset({"1", "-9", "4"})
_SUBMISSIONS: Final = (Request.SEND, Request.STREAM)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds that the promises name."""

    end_s: float = 30.0
    """From the end of the last fault to the end of each task, and until no request fails."""
    stop_s: float = 5.0
    """From a cancel, or from the end of the faults after it, to the last effect of the task."""


class Violation(NamedTuple):
    """A promise that the history breaks."""

    promise: str
    task: str
    problem: str
    at: float
    """When it was seen."""


class Cursor(NamedTuple):
    """The id of an event, in the order of the journal."""

    sequence: int
    n: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Read the id of a server-sent event."""
        match = _CURSOR.fullmatch(text)
        assert match is not None, text
        return cls(int(match[1]), int(match[2]), int(match[3] or 1))


Violations: TypeAlias = Iterator[Violation]


def check(
    history: Sequence[Record], bounds: Bounds, *, in_doubt: Collection[str] = ()
) -> list[Violation]:
    """Return all violations in a history of one run, which is sorted by time.

    The network may deliver messages that are `in_doubt` since earlier runs.
    """
    run = _Run(history, bounds, in_doubt)
    return [violation for rule in _RULES for violation in rule(run)]


def find_in_doubt(history: Sequence[Record], bounds: Bounds) -> frozenset[str]:
    """Return the messages of which no client knows whether they made a task."""
    return frozenset(_Run(history, bounds).unacknowledged)


class _Run:
    """A history, sorted out once for all rules."""

    def __init__(
        self, history: Sequence[Record], bounds: Bounds, in_doubt: Collection[str] = ()
    ) -> None:
        self.bounds = bounds
        self.in_doubt = in_doubt
        self.history = history
        self.invoked: dict[int, Record] = {}
        self.first: dict[str, Record] = {}
        """The first request with each message that makes a task."""
        self.answers: dict[int, Record] = {}
        self.events: dict[int, list[Record]] = defaultdict(list)
        self.effects: dict[str, list[Record]] = defaultdict(list)
        for record in history:
            match record.kind:
                case Kind.INVOKED:
                    self.invoked[record.number] = record
                    if record.name in _SUBMISSIONS and not record.is_answer:
                        self.first.setdefault(record.message, record)
                case Kind.OK | Kind.REFUSED | Kind.UNKNOWN:
                    self.answers[record.number] = record
                case Kind.EVENT:
                    self.events[record.number].append(record)
                case Kind.EFFECT:
                    self.effects[record.task].append(record)
        self.faults = list(_find_faults(history))
        self.calm_at = max((until for _, until in self.faults), default=0.0)
        """The end of the last fault."""
        self.tasks = self._sort_tasks()
        acknowledged = {message for task in self.tasks.values() for message in task.messages}
        self.unacknowledged: set[str] = self.first.keys() - acknowledged

    def _sort_tasks(self) -> dict[str, "_Task"]:
        tasks: dict[str, _Task] = {}
        for record in self.history:
            if record.task and record.kind in (Kind.OK, Kind.EVENT):
                task = tasks.setdefault(record.task, _Task(record.task, record.at))
                request = self.invoked[record.number]
                if request.name in _SUBMISSIONS and not request.is_answer:
                    task.messages.setdefault(request.message, self.first[request.message])
                if record.state:
                    task.states.append(record)
        return tasks


@dataclass(slots=True)
class _Task:
    """What clients have seen of a task."""

    id: str
    accepted_at: float
    messages: dict[str, Record] = field(default_factory=dict)
    """The first request with each message that made the task."""
    states: list[Record] = field(default_factory=list)
    """Records with a state, by time."""

    @property
    def end(self) -> Record | None:
        """The first record of its end."""
        return next((record for record in self.states if record.state in TERMINAL), None)


def _find_faults(history: Sequence[Record]) -> Iterator[tuple[float, float]]:
    """Yield the start and end of each fault. A fault that is not healed lasts forever."""
    started: dict[int, float] = {}
    for record in history:
        if record.kind is Kind.FAULT:
            started[record.number] = record.at
        elif record.kind is Kind.HEALED:
            yield started.pop(record.number), record.at
    for at in started.values():
        yield at, float("inf")


@dataclass(slots=True)
class _Fold:
    """A task as its events make it."""

    state: str
    texts: Mapping[str, str]

    def apply(self, event: Record) -> "_Fold":
        """Return the task after an event."""
        if event.texts is not None:
            return _Fold(event.state, event.texts)
        if event.state:
            return _Fold(event.state, self.texts)
        before = self.texts.get(event.artifact, "") if event.is_append else ""
        return _Fold(self.state, {**self.texts, event.artifact: before + event.text})


def _check_truth(run: _Run) -> Violations:
    """All readers of a task see one sequence of events, and snapshots are folds of it."""
    seen: dict[str, dict[Cursor, Record]] = defaultdict(dict)
    for event in _all_events(run):
        if event.texts is not None:
            continue
        known = seen[event.task].setdefault(Cursor.parse(event.cursor), event)
        if _content(known) != _content(event):
            words = f"event {event.cursor} is {_content(event)} and {_content(known)}"
            yield Violation("one truth", event.task, words, event.at)
    for task, events in seen.items():
        order = sorted(events)
        for one, next_one in pairwise(order):
            at = events[next_one].at
            if one[:2] == next_one[:2]:
                words = f"two epochs have an event {one.sequence}.{one.n}"
                yield Violation("one truth", task, words, at)
            elif one.epoch > next_one.epoch:
                words = f"{events[one].cursor} is before {events[next_one].cursor}"
                yield Violation("one truth", task, words, at)
            if events[one].state in TERMINAL:
                words = f"{events[next_one].cursor} is after the end"
                yield Violation("one truth", task, words, at)
    yield from _check_gaps(run, {task: sorted(events) for task, events in seen.items()})


def _check_gaps(run: _Run, orders: Mapping[str, Sequence[Cursor]]) -> Violations:
    """A stream has each event after its cursor or snapshot, once and in order."""
    for number, events in run.events.items():
        request = run.invoked[number]
        last = Cursor.parse(request.cursor) if request.cursor else None
        for event in events:
            cursor = Cursor.parse(event.cursor)
            promise = "resume" if last and event is events[0] else "one truth"
            if last is not None and cursor <= last:
                words = f"{event.cursor} came after {last.sequence}.{last.n}"
                yield Violation(promise, event.task, words, event.at)
            elif last is not None and event.texts is None:
                missing = [
                    other
                    for other in orders.get(event.task, ())
                    if last[:2] < other[:2] < cursor[:2]
                ]
                if missing:
                    words = f"{event.cursor} came without {missing[0].sequence}.{missing[0].n}"
                    yield Violation(promise, event.task, words, event.at)
            # The events of its sequence are in a snapshot.
            last = cursor
            if event.texts is not None:
                last = Cursor(cursor.sequence, _LAST, cursor.epoch)


def _check_folds(run: _Run) -> Violations:
    """A task is the fold of its events, for every reader; also when it is asked for."""
    folds: dict[tuple[str, Cursor], _Fold] = {}
    last: dict[str, _Fold] = {}
    for number, events in _by_start(run):
        request = run.invoked[number]
        start = Cursor.parse(request.cursor) if request.cursor else None
        fold = folds.get((request.task, start)) if start else None
        for event in events:
            if event.texts is None and fold is None:
                continue
            fold = (fold or _Fold("", {})).apply(event)
            key = event.task, Cursor.parse(event.cursor)
            known = folds.setdefault(key, fold)
            if (known.state, known.texts) != (fold.state, fold.texts):
                words = f"at {event.cursor} it is {fold} and {known}"
                yield Violation("one truth", event.task, words, event.at)
            yield from _check_text(run, event, fold)
            if fold.state in TERMINAL:
                last[event.task] = fold
    for answer in run.answers.values():
        if answer.texts is None or answer.kind is not Kind.OK:
            continue
        asked = _Fold(answer.state, answer.texts)
        yield from _check_text(run, answer, asked)
        if answer.state in TERMINAL:
            known = last.setdefault(answer.task, asked)
            if (known.state, known.texts) != (asked.state, asked.texts):
                words = f"it ended as {known}, and is {asked}"
                yield Violation("one truth", answer.task, words, answer.at)


def _check_text(run: _Run, seen: Record, fold: _Fold) -> Violations:
    """No piece is lost, doubled or moved, and all are of one run of the agent's code."""
    wanted = max((first.pieces for first in run.tasks[seen.task].messages.values()), default=None)
    pieces = [piece.partition(".") for piece in "".join(fold.texts.values()).split()]
    numbers = [number for number, _, _ in pieces]
    names = {name for _, _, name in pieces}
    is_whole = fold.state == "COMPLETED" and wanted is not None
    count = wanted if is_whole and wanted is not None else len(numbers)
    if numbers != [str(number) for number in range(1, count + 1)]:
        words = f"its text is {' '.join(numbers)}, of {wanted} pieces"
        yield Violation("no text lost, doubled or moved", seen.task, words, seen.at)
    if len(names) > 1:
        words = f"its text is of {len(names)} runs of the agent"
        yield Violation("no text lost, doubled or moved", seen.task, words, seen.at)


def _check_resume(run: _Run) -> Violations:
    """A cursor that a client got is good, and a task that was acknowledged is found."""
    for number, answer in run.answers.items():
        request = run.invoked[number]
        if answer.kind is not Kind.REFUSED or not request.task:
            continue
        task = run.tasks.get(request.task)
        has_ended = task is not None and task.end is not None
        if request.name == Request.SUBSCRIBE and request.cursor:
            words = f"a subscription after {request.cursor} was refused: {answer.text}"
            yield Violation("resume", request.task, words, answer.at)
        elif request.name == Request.GET or not has_ended:
            words = f"{request.name} was refused: {answer.text}"
            yield Violation("one truth", request.task, words, answer.at)


def _check_stuck(run: _Run) -> Violations:
    """Each acknowledged task ends, and no request fails when the faults are over."""
    for task in run.tasks.values():
        limit = max(run.calm_at, task.accepted_at) + run.bounds.end_s
        at = task.end.at if task.end else float("inf")
        if at > limit:
            state = task.states[-1].state if task.states else "accepted"
            words = f"it has not ended {run.bounds.end_s} s after the last fault, and is {state}"
            yield Violation("nothing is stuck", task.id, words, min(at, run.history[-1].at))
    for number, request in run.invoked.items():
        answer = run.answers.get(number)
        is_late = request.at > run.calm_at + run.bounds.end_s
        if answer is None or (answer.kind is Kind.UNKNOWN and is_late):
            words = f"{request.name} at {request.where} has no answer"
            yield Violation("nothing is stuck", request.task, words, request.at)


def _check_cancel(run: _Run) -> Violations:
    """A cancel that was acknowledged is the end, else the task had ended; its effects stop."""
    requests = [each for each in run.invoked.values() if each.name == Request.CANCEL]
    asked = {request.task for request in requests}
    # The first acknowledgement of each.
    canceled: dict[str, Record] = {}
    for request in requests:
        answer = run.answers.get(request.number)
        if answer is not None and answer.kind is Kind.OK:
            known = canceled.get(request.task, answer)
            canceled[request.task] = min(known, answer, key=lambda each: each.at)
    for task in run.tasks.values():
        for seen in task.states:
            if task.id in canceled and seen.state in TERMINAL - {"CANCELED"}:
                words = f"its cancel was acknowledged, and it is {seen.state}"
                yield Violation("cancel", task.id, words, seen.at)
            if seen.state == "CANCELED" and task.id not in asked:
                yield Violation("cancel", task.id, "nobody has canceled it", seen.at)
    for task_id, answer in canceled.items():
        late = (
            effect
            for effect in run.effects[task_id]
            if effect.at > _stop_limit(run, answer.at, effect.at)
        )
        if (first := next(late, None)) is not None:
            words = f"its code runs {first.at - answer.at:.1f} s after the cancel"
            yield Violation("cancel", task_id, words, first.at)


def _stop_limit(run: _Run, canceled_at: float, effect_at: float) -> float:
    """Return when effects of a canceled task must be over: a frozen host may have one later."""
    ends = [until for start, until in run.faults if until > canceled_at and start < effect_at]
    return max([canceled_at, *ends]) + run.bounds.stop_s


def _check_submissions(run: _Run) -> Violations:
    """A message makes one task, whichever replica it was sent to and however often."""
    tasks: dict[str, set[str]] = defaultdict(set)
    for task in run.tasks.values():
        for message in task.messages:
            tasks[message].add(task.id)
        if len(task.messages) > 1:
            words = f"it was made by {len(task.messages)} messages"
            yield Violation("submit once", task.id, words, task.accepted_at)
    for effects in run.effects.values():
        for effect in effects:
            if effect.name == Effect.BEGIN and not effect.is_answer:
                tasks[effect.message].add(effect.task)
    for message, ids in tasks.items():
        if len(ids) > 1:
            words = f"message {message} made the tasks {sorted(ids)}"
            yield Violation("submit once", min(ids), words, run.history[-1].at)
    yield from _check_lists(run)


def _check_lists(run: _Run) -> Violations:
    """A list after the end has all tasks, and no other."""
    late = {
        effect.task
        for effects in run.effects.values()
        for effect in effects
        if effect.message in run.in_doubt
    }
    ends = [task.end.at if task.end else float("inf") for task in run.tasks.values()]
    for answer in run.answers.values():
        is_late = run.invoked[answer.number].at > max([run.calm_at, *ends])
        if answer.listed is None or answer.kind is not Kind.OK or not is_late:
            continue
        for task_id in run.tasks.keys() - set(answer.listed):
            yield Violation("one truth", task_id, "it is in no list", answer.at)
        unknown = set(answer.listed) - run.tasks.keys() - late
        if len(unknown) > len(run.unacknowledged):
            words = f"of {len(unknown)} listed tasks nobody knows the message"
            yield Violation("submit once", min(unknown), words, answer.at)
        if len(set(answer.listed)) != len(answer.listed):
            yield Violation("one truth", "", "a list has a task twice", answer.at)


def _check_order(run: _Run) -> Violations:
    """The turns of a conversation run one after another, in the order of their messages."""
    conversations: dict[str, list[tuple[Record, _Task]]] = defaultdict(list)
    for task in run.tasks.values():
        for request in task.messages.values():
            if request.context:
                conversations[request.context].append((request, task))
    for turns in conversations.values():
        turns.sort(key=lambda turn: turn[0].at)
        for (_, earlier), (request, later) in pairwise(turns):
            ended_as = earlier.states[-1].state if earlier.states else ""
            ends = _times(run.effects[earlier.id], Effect.END)
            begins = _times(run.effects[later.id], Effect.BEGIN)
            if request.at < earlier.accepted_at or ended_as != "COMPLETED":
                continue
            if ends and begins and begins[0] < ends[0]:
                words = f"it began {ends[0] - begins[0]:.2f} s before the turn before it ended"
                yield Violation("order in a conversation", later.id, words, begins[0])


def _check_exits(run: _Run) -> Violations:
    """No fault ends a process, except a host that can't have its journal."""
    for record in run.history:
        is_host = record.where.startswith("host")
        if record.kind is Kind.EXIT and not (is_host and record.text in _LOST_JOURNAL):
            words = f"the process at {record.where} has ended with {record.text}"
            yield Violation("processes survive", "", words, record.at)


def _times(effects: Iterable[Record], name: Effect) -> list[float]:
    return [effect.at for effect in effects if effect.name == name]


def _all_events(run: _Run) -> Iterator[Record]:
    for events in run.events.values():
        yield from events


def _by_start(run: _Run) -> Iterator[tuple[int, list[Record]]]:
    """Yield the streams in an order in which a cursor is known before it is resumed."""
    yield from sorted(run.events.items(), key=lambda item: run.invoked[item[0]].at)


def _content(event: Record) -> tuple[str, str, str, bool]:
    return event.state, event.artifact, event.text, event.is_append


_RULES: Final[Sequence[Callable[[_Run], Violations]]] = (
    _check_truth,
    _check_folds,
    _check_resume,
    _check_stuck,
    _check_cancel,
    _check_submissions,
    _check_order,
    _check_exits,
)
