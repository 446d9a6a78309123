"""Spans and metrics have the names that OpenTelemetry publishes, or names in our own namespace."""

import re

from harness.mesh.trace_rules import OWN_NAMESPACE, other_names, published_names
from trunkline.observe import span_content, telemetry
from trunkline.observe.metrics.instruments import INSTRUMENTS

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


def own_constants() -> dict[str, str]:
    """Return what names an attribute: constants of our modules, and labels of instruments."""
    constants = {
        name: value
        for module in (telemetry, span_content)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and _NAME.fullmatch(value)
    }
    labels = [attribute for instrument in INSTRUMENTS for attribute in instrument.attributes]
    return constants | {f"label {label.name}": label.name for label in labels}


def test_every_attribute_is_published_or_ours() -> None:
    constants = own_constants()
    assert {"gen_ai.agent.name", "messaging.system", "a2a.task.id", "input.value"} <= set(
        constants.values()
    )
    strange = {
        name: value
        for name, value in constants.items()
        if value not in published_names() and not value.startswith(OWN_NAMESPACE)
    }
    assert strange == {}


def test_no_name_is_withdrawn() -> None:
    names = {*own_constants().values(), *(instrument.name for instrument in INSTRUMENTS)}
    assert not names & set(other_names()["withdrawn"])


def test_every_metric_is_published_or_ours() -> None:
    published = other_names()["metrics"]
    standard = [one for one in INSTRUMENTS if not one.name.startswith(OWN_NAMESPACE)]
    assert {one.name for one in standard} == set(published)
    for instrument in standard:
        rule = published[instrument.name]
        labels = {attribute.name for attribute in instrument.attributes}
        strange = labels - {*rule["required"], *rule["optional"]}
        assert (instrument.kind, instrument.unit) == (rule["kind"], rule["unit"]), instrument.name
        assert set(rule["required"]) <= labels, instrument.name
        assert all(name.startswith(OWN_NAMESPACE) for name in strange), (instrument.name, strange)


def test_units_of_our_metrics_are_in_ucum() -> None:
    """A number of things is in braces, as the conventions have it."""
    ours = [one for one in INSTRUMENTS if one.name.startswith(OWN_NAMESPACE)]
    assert [one.name for one in ours if one.unit not in ("s", "USD") and one.unit[0] != "{"] == []


def test_the_file_lists_only_names_that_we_use() -> None:
    assert set(other_names()["attributes"]) <= set(own_constants().values())


def test_operations_of_generative_ai_are_published() -> None:
    ours = {
        telemetry.CHAT,
        telemetry.EXECUTE_TOOL,
        telemetry.INVOKE_AGENT,
        telemetry.INVOKE_WORKFLOW,
        telemetry.PLAN,
    }
    assert ours == set(other_names()["operations"])
