"""The tracer provider of this process, for the time of a test."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

Memory = TypeVar("Memory", bound=InMemorySpanExporter)


def forget_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test set the provider, which a process can do once, and unset it afterwards."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())


@contextmanager
def spans_in(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """Record the spans that end inside the block."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    # The API lets a process set its provider once; a test needs its own.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield memory
    provider.shutdown()
