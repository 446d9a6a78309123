"""Problems of a collector's configuration, found without a collector.

`tests/vectors/collector_components.json` has what is known of the distribution: the components
that `deploy/` uses, with the signals that they take and the names of their settings.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

_VECTORS: Final = Path(__file__).parents[2] / "vectors/collector_components.json"
COMPONENTS: Final = json.loads(_VECTORS.read_text(encoding="utf-8"))
_IN_PIPELINES: Final = ("receivers", "processors", "exporters")
_KINDS: Final = (*_IN_PIPELINES, "extensions")

Configuration: TypeAlias = Mapping[str, Any]


def find_problems(configuration: Configuration) -> Iterator[str]:
    """Yield why a collector would not start, would warn, or would lose data."""
    yield from (f"{name}: no part" for name in configuration.keys() - {*_KINDS, "service"})
    for kind in _KINDS:
        for name, settings in configuration.get(kind, {}).items():
            yield from _problems_of_component(kind, name, settings or {})
    service = configuration["service"]
    yield from (f"{name}: no part" for name in service.keys() - {"extensions", "pipelines"})
    for name, pipeline in service["pipelines"].items():
        yield from _problems_of_pipeline(configuration, name, pipeline)
    yield from _problems_of_use(configuration)


def _problems_of_component(kind: str, name: str, settings: Configuration) -> Iterator[str]:
    component = COMPONENTS[kind].get(_type_of(name))
    if component is None:
        yield f"{name}: not among the {kind} of the distribution"
        return
    for path in _paths(settings):
        if not any(_covers(known, path) for known in component["settings"]):
            yield f"{name}: no setting {path}"
    if _type_of(name).startswith("otlp_") and "endpoint" not in settings:
        yield f"{name}: no endpoint"


def _problems_of_pipeline(
    configuration: Configuration, name: str, pipeline: Configuration
) -> Iterator[str]:
    signal = _type_of(name)
    for kind in _IN_PIPELINES:
        for used in pipeline.get(kind, ()):
            if used not in configuration.get(kind, {}):
                yield f"{name}: {used} is not declared"
            elif signal not in COMPONENTS[kind].get(_type_of(used), {"signals": ()})["signals"]:
                yield f"{name}: {used} takes no {signal}"
    for kind in ("receivers", "exporters"):
        if not pipeline.get(kind):
            yield f"{name}: no {kind}"
    # What comes before it is not limited.
    if pipeline.get("processors", [""])[0] != "memory_limiter":
        yield f"{name}: memory_limiter is not first"


def _problems_of_use(configuration: Configuration) -> Iterator[str]:
    service = configuration["service"]
    extensions = service.get("extensions", [])
    for name in extensions:
        if name not in configuration.get("extensions", {}):
            yield f"{name} is not declared"
    for kind in _KINDS:
        used = {
            name
            for pipeline in service["pipelines"].values()
            for name in (extensions if kind == "extensions" else pipeline.get(kind, ()))
        }
        for name in configuration.get(kind, {}).keys() - used:
            yield f"{name} is not used"


def _type_of(name: str) -> str:
    """Return the type of a component or pipeline, which may have a name of its own behind it."""
    return name.partition("/")[0]


def _paths(settings: Configuration, above: str = "") -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _covers(known: str, path: str) -> bool:
    """Return whether a path is a setting that is known, is above it, or is in its value."""
    return known == path or known.startswith(f"{path}.") or path.startswith(f"{known}.")
