"""The kinds of instruments. They cost little until a process exports its metrics.

OpenTelemetry's SDK takes 5 to 7 µs for a measurement (docs/decisions/0403). So counters count by
themselves, and the SDK reads them at an export. Histograms sort values into their buckets by
themselves, with exemplars: the trace that a value was measured in. Exports add them.

The number of series is bounded. Of an attribute whose values come from outside, each instrument
takes the first values, up to a limit; all further ones count as one value, "other".
"""

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from opentelemetry import trace

from trunkline.observe import telemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

Value: TypeAlias = str | int
"""A value of an attribute. An empty text leaves the attribute out."""
Reading: TypeAlias = tuple[tuple[Value, ...], float]
"""The values of a gauge's attributes, and its value."""
_Owner = TypeVar("_Owner", bound=object)

OTHER: Final = "other"
# Whether the spans of exemplars are recorded, by the values of OTEL_METRICS_EXEMPLAR_FILTER.
_EXEMPLAR_FILTERS: Final[Mapping[str, Collection[bool]]] = {
    "trace_based": (True,),
    "always_on": (True, False),
    "always_off": (),
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of measurements: a label in Prometheus."""

    name: str
    description: str
    values: frozenset[Value] = frozenset()
    """All values of the attribute. It is empty if they are not known in advance."""
    limit: int = 100
    """The number of values that an instrument tells apart, if they are not known in advance."""
    other: str = OTHER
    """Stands for all values beyond these."""


class Instrument(ABC):
    """An instrument of the process: a name, a unit, a description, and attributes."""

    kind: ClassVar[str]
    """The word for it in documentation."""

    def __init__(
        self, name: str, unit: str, description: str, attributes: Sequence[Attribute] = ()
    ) -> None:
        """Define the instrument. `unit` is in UCUM: `s`, `By`, or a thing in braces, `{task}`."""
        self.name = name
        self.unit = unit
        self.description = description
        self.attributes = tuple(attributes)
        self._seen: tuple[set[Value], ...] = tuple(
            set(attribute.values) for attribute in attributes
        )
        self._known: dict[tuple[Value, ...], Mapping[str, Value]] = {}

    @abstractmethod
    def connect(self, meter: "Meter") -> None:
        """Make the instrument of an SDK that measures this one."""

    def label(self, values: tuple[Value, ...]) -> Mapping[str, Value]:
        """Return the attributes with these values, bounded, in the order of `attributes`."""
        known = self._known.get(values)
        if known is not None:
            return known
        bounded = tuple(
            self._bound(attribute, seen, value)
            for attribute, seen, value in zip(self.attributes, self._seen, values, strict=True)
        )
        labels = {
            attribute.name: value
            for attribute, value in zip(self.attributes, bounded, strict=True)
            if value != ""
        }
        if bounded == values:
            # Those with other values would be as many as the values.
            self._known[values] = labels
        return labels

    @staticmethod
    def _bound(attribute: Attribute, seen: set[Value], value: Value) -> Value:
        if value == "" or value in seen:
            return value
        if attribute.values or len(seen) >= attribute.limit:
            return attribute.other
        seen.add(value)
        return value


class Counter(Instrument):
    """A number that only grows."""

    kind = "counter"

    def __init__(
        self, name: str, unit: str, description: str, attributes: Sequence[Attribute] = ()
    ) -> None:
        super().__init__(name, unit, description, attributes)
        self._lock = threading.Lock()
        # One without attributes begins at 0, so that its first increase shows.
        self._totals: dict[tuple[Value, ...], float] = {} if attributes else {(): 0}

    def add(self, amount: float, *values: Value) -> None:
        """Add an amount, for these values of the attributes. Thread-safe."""
        with self._lock:
            total = self._totals.get(values)
            if total is None:
                # Beyond the limit, all values share one number.
                labels = self.label(values)
                values = tuple(labels.get(attribute.name, "") for attribute in self.attributes)
                total = self._totals.get(values, 0)
            self._totals[values] = total + amount

    def begin(self, *values: Value) -> None:
        """Begin a series at 0. Prometheus sees no increase in the first value of a series."""
        self.add(0, *values)

    def connect(self, meter: "Meter") -> None:
        """Let the SDK read the totals at each export."""
        meter.create_observable_counter(
            self.name, [self._observe], unit=self.unit, description=self.description
        )

    def _observe(self, _options: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        with self._lock:
            totals = tuple(self._totals.items())
        return [Observation(total, self.label(values)) for values, total in totals]


class Gauge(Instrument):
    """A state of objects, which is read at each export."""

    kind = "gauge"

    def __init__(
        self, name: str, unit: str, description: str, attributes: Sequence[Attribute] = ()
    ) -> None:
        super().__init__(name, unit, description, attributes)
        self._readers: dict[weakref.ref[Any], Callable[[Any], Iterable[Reading]]] = {}

    def watch(self, owner: _Owner, read: Callable[[_Owner], Iterable[Reading]]) -> None:
        """Read the state of an object for as long as it lives. Readings of several add up.

        Collections of garbage are rare, so `forget` an object in a cycle whose state must not
        outlast its use.

        `read` is a function of its class, not a bound method, which would keep the object alive.
        It is called in any thread, so it copies what it iterates over.
        """
        self._readers[weakref.ref(owner, self._remove)] = read

    def forget(self, owner: object) -> None:
        """Read an object no longer. Its series end though others may still hold it."""
        self._remove(weakref.ref(owner))

    def connect(self, meter: "Meter") -> None:
        """Let the SDK read the objects at each export."""
        meter.create_observable_gauge(
            self.name, [self._observe], unit=self.unit, description=self.description
        )

    def _remove(self, reference: "weakref.ref[Any]") -> None:
        self._readers.pop(reference, None)

    def _observe(self, _options: "CallbackOptions") -> "Iterable[Observation]":
        from opentelemetry.metrics import Observation

        sums: dict[tuple[tuple[str, Value], ...], float] = {}
        for reference, read in tuple(self._readers.items()):
            owner = reference()
            for values, reading in () if owner is None else read(owner):
                key = tuple(self.label(values).items())
                sums[key] = sums.get(key, 0) + reading
        return [Observation(total, dict(key)) for key, total in sums.items()]


@dataclass(slots=True)
class Measurement:
    """A measurement of a block that runs."""

    error_type: str = ""
    """The kind of its error, if the block sets one: for errors that it does not raise."""


class Exemplar(NamedTuple):
    """A value of a bucket, and the span in which it was measured."""

    value: float
    time_ns: int
    """Nanoseconds since 1970."""
    trace_id: int
    span_id: int


class Distribution(NamedTuple):
    """The values that a histogram has recorded for some values of its attributes."""

    counts: tuple[int, ...]
    """One for each bucket, and one for all values beyond the last."""
    total: float
    start_time_ns: int
    exemplars: tuple[Exemplar, ...] = ()
    """The latest exemplar of each bucket that has one."""


class _Series:
    __slots__ = ("counts", "exemplars", "start_time_ns", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0
        self.start_time_ns = time.time_ns()
        self.exemplars: dict[int, Exemplar] = {}


class Histogram(Instrument):
    """The distribution of values, with exemplars: about 2 µs for each value.

    It sorts values into its buckets by itself, because the SDK takes 5 to 7 µs. Exports add it to
    what the SDK has measured; see `histograms.py`.
    """

    kind = "histogram"

    def __init__(
        self,
        name: str,
        unit: str,
        description: str,
        attributes: Sequence[Attribute] = (),
        *,
        buckets: Sequence[float],
    ) -> None:
        super().__init__(name, unit, description, attributes)
        self.buckets = tuple(buckets)
        self._lock = threading.Lock()
        self._series: dict[tuple[Value, ...], _Series] = {}
        self._is_connected = False
        self._exemplars_of: Collection[bool] = ()

    def record(self, value: float, *values: Value, span: trace.Span | None = None) -> None:
        """Record a value. The exemplar is `span`, or the current span. Thread-safe.

        Before `connect`, nothing is recorded.
        """
        if not self._is_connected:
            return
        measured_in = (span or trace.get_current_span()).get_span_context()
        index = bisect_left(self.buckets, value)
        with self._lock:
            series = self._series.get(values)
            if series is None:
                series = self._find_series(values)
            series.counts[index] += 1
            series.total += value
            if measured_in.trace_flags.sampled in self._exemplars_of:
                series.exemplars[index] = Exemplar(
                    value, time.time_ns(), measured_in.trace_id, measured_in.span_id
                )

    def _find_series(self, values: tuple[Value, ...]) -> _Series:
        """Return the series of values. Beyond the limit, all values share one series."""
        labels = self.label(values)
        bounded = tuple(labels.get(attribute.name, "") for attribute in self.attributes)
        return self._series.setdefault(bounded, _Series(len(self.buckets)))

    def read(self) -> Mapping[tuple[Value, ...], Distribution]:
        """Return what was recorded so far, by the values of the attributes."""
        with self._lock:
            return {
                values: Distribution(
                    tuple(series.counts),
                    series.total,
                    series.start_time_ns,
                    tuple(series.exemplars.values()),
                )
                for values, series in self._series.items()
            }

    @contextmanager
    def measure(self, *values: Value) -> Iterator[Measurement]:
        """Record the time of a block, in seconds.

        `values` lacks the last attribute, which is the kind of the block's error. The block may set
        it. Otherwise it is the kind of the exception that ends the block.
        """
        started_s = time.perf_counter()
        measurement = Measurement()
        try:
            yield measurement
        except BaseException as error:
            measurement.error_type = measurement.error_type or telemetry.error_type(error)
            raise
        finally:
            duration_s = time.perf_counter() - started_s
            self.record(duration_s, *values, measurement.error_type)

    def connect(self, meter: "Meter") -> None:
        """Record values from now on."""
        word = os.environ.get("OTEL_METRICS_EXEMPLAR_FILTER", "").strip().lower()
        self._exemplars_of = _EXEMPLAR_FILTERS.get(word, _EXEMPLAR_FILTERS["trace_based"])
        self._is_connected = True
        if not self.attributes:
            # Prometheus sees no increase in the first value of a series.
            with self._lock:
                self._find_series(())
