"""The collector's configuration in `deploy/` and in the documentation, held to its distribution."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import pytest
import yaml

from harness.deploy.collector_configuration import COMPONENTS, find_problems
from harness.deploy.composition import read_services
from harness.deploy.image import ROOT

Edit: TypeAlias = Callable[[dict[str, Any]], object]
FILE: Final = ROOT / "deploy/collector/config.yaml"
PAGE: Final = ROOT / "docs/observability.md"


def read_configuration() -> dict[str, Any]:
    configuration: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return configuration


def merge(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return both, as a collector merges two files."""
    merged = dict(base)
    for name, value in other.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        merged[name] = value
    return merged


def test_the_configuration_fits_the_distribution() -> None:
    assert list(find_problems(read_configuration())) == []


def test_the_image_is_not_older_than_what_is_known_of_it() -> None:
    def parse(version: str) -> list[int]:
        return [int(part) for part in version.split(".")]

    name, _, tag = read_services()["collector"]["image"].partition(":")
    assert name == "otel/opentelemetry-collector-contrib"
    assert parse(tag) >= parse(COMPONENTS["version"])


def test_the_additions_of_the_documentation_fit_the_distribution() -> None:
    blocks = re.findall(r"```text\n(exporters:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        assert list(find_problems(merge(read_configuration(), yaml.safe_load(block)))) == []


def rename(kind: str, old: str, new: str) -> Edit:
    """Return what renames a component everywhere."""

    def edit(configuration: dict[str, Any]) -> None:
        configuration[kind][new] = configuration[kind].pop(old)
        for pipeline in configuration["service"]["pipelines"].values():
            pipeline[kind] = [new if name == old else name for name in pipeline[kind]]

    return edit


def pipeline(signal: str, **parts: list[str]) -> Edit:
    return lambda configuration: configuration["service"]["pipelines"][signal].update(parts)


JAEGER: Final = "otlp_grpc/jaeger"
BREAKS: Final[Mapping[str, Edit]] = {
    "logging: not among the exporters": rename("exporters", "debug", "logging"),
    # The old name, which still works, with a warning.
    "otlp/jaeger: not among the exporters": rename("exporters", JAEGER, "otlp/jaeger"),
    "debug: not among the processors": lambda c: c["processors"].update(debug={}),
    "traces: otlp_grpc/tempo is not declared": pipeline("traces", exporters=["otlp_grpc/tempo"]),
    "traces: prometheus takes no traces": pipeline("traces", exporters=["prometheus"]),
    "spans: otlp takes no spans": lambda c: c["service"]["pipelines"].update(
        spans=c["service"]["pipelines"].pop("traces")
    ),
    "logs: no receivers": pipeline("logs", receivers=[]),
    "memory_limiter is not first": pipeline("logs", processors=["batch", "memory_limiter"]),
    "no setting limit_percent": lambda c: c["processors"]["memory_limiter"].update(limit_percent=8),
    "no setting tls.insecur": lambda c: c["exporters"][JAEGER].update(tls={"insecur": True}),
    "otlp_grpc/jaeger: no endpoint": lambda c: c["exporters"][JAEGER].pop("endpoint"),
    "no setting protocols.thrift": lambda c: c["receivers"]["otlp"]["protocols"].update(thrift={}),
    "debug is not used": pipeline("logs", exporters=["otlp_grpc/jaeger"]),
    "health_check is not used": lambda c: c["service"].pop("extensions"),
    "pprof is not declared": lambda c: c["service"].update(extensions=["pprof"]),
    "exporter: no part": lambda c: c.update(exporter={}),
}


@pytest.mark.parametrize("problem", BREAKS)
def test_a_broken_configuration_is_found(problem: str) -> None:
    configuration = read_configuration()
    BREAKS[problem](configuration)
    assert [found for found in find_problems(configuration) if problem in found]
