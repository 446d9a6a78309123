"""The table of all instruments in Markdown: `python -m trunkline.observe.metrics.table` prints it.

`docs/metrics.md` contains it, which a test checks.
"""

import sys
from collections.abc import Iterator

from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.metrics.kinds import Attribute, Counter, Instrument
from trunkline.observe.metrics.prometheus import family_name, to_name


def render_table() -> str:
    """Return the instruments, and then the attributes that they have."""
    return "\n".join([*_render_instruments(), "", *_render_attributes()]) + "\n"


def _render_instruments() -> Iterator[str]:
    yield "| instrument | in Prometheus | kind, unit | attributes | measures |"
    yield "|---|---|---|---|---|"
    for instrument in INSTRUMENTS:
        attributes = ", ".join(f"`{attribute.name}`" for attribute in instrument.attributes)
        name = _prometheus_name(instrument)
        kind = f"{instrument.kind}, `{instrument.unit}`"
        yield (
            f"| `{instrument.name}` | `{name}` | {kind} | {attributes} | {instrument.description} |"
        )


def _render_attributes() -> Iterator[str]:
    yield "| attribute | label in Prometheus | is | values |"
    yield "|---|---|---|---|"
    seen: set[str] = set()
    for instrument in INSTRUMENTS:
        for attribute in instrument.attributes:
            if attribute.name not in seen:
                seen.add(attribute.name)
                label = to_name(attribute.name)
                values = _describe_values(attribute)
                yield f"| `{attribute.name}` | `{label}` | {attribute.description} | {values} |"


def _prometheus_name(instrument: Instrument) -> str:
    name = family_name(instrument.name, instrument.unit)
    return f"{name}_total" if isinstance(instrument, Counter) else name


def _describe_values(attribute: Attribute) -> str:
    if attribute.values:
        values = sorted(str(value) for value in attribute.values)
        return ", ".join(f"`{value}`" for value in [*values, attribute.other])
    return f"the first {attribute.limit}, then `{attribute.other}`"


if __name__ == "__main__":
    sys.stdout.write(render_table())
