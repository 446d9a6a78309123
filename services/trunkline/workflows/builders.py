"""Builds workflows in Python, and writes them as files.

    review = (
        WorkflowBuilder("review")
        .start()
        .agent("draft", "writer", "${input.text}")
        .agent("score", "reviewer")
        .condition("check", {"good": "nodes.score.data.score >= 80"}, otherwise="bad")
        .edge("check", "draft", "bad")
        .end(when="good")
        .build()
    )

Each node follows the node before it. `after` names another node, and `edge` adds further edges.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from trunkline.workflows.definition import Workflow
from trunkline.workflows.validation import MeshNames, load_workflow_dict

_Content = str | Mapping[str, Any]


class WorkflowBuilder:
    """Builds a workflow node by node. `build` validates it as a file is validated.

    Fields of the workflow, such as `version`, `inputs` and `limits`, are keyword arguments.
    Each node takes the fields of its type, and `timeout` and `retry`.
    """

    def __init__(self, name: str, **fields: object) -> None:
        self._fields: dict[str, Any] = {"name": name, **fields}
        self._nodes: list[dict[str, Any]] = []
        self._edges: list[dict[str, Any]] = []
        self._last = ""

    def start(self, node_id: str = "start", **fields: object) -> Self:
        """Add the start."""
        return self._add("start", node_id, {}, "", "", fields)

    def end(
        self, node_id: str = "end", *, after: str = "", when: str = "", **fields: object
    ) -> Self:
        """Add an end."""
        return self._add("end", node_id, {}, after, when, fields)

    def agent(
        self,
        node_id: str,
        agent: str,
        message: _Content | None = None,
        *,
        after: str = "",
        when: str = "",
        **fields: object,
    ) -> Self:
        """Add a node that asks an agent."""
        return self._add(
            "agent", node_id, _drop_none(agent=agent, message=message), after, when, fields
        )

    def tool(
        self,
        node_id: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        after: str = "",
        when: str = "",
        **fields: object,
    ) -> Self:
        """Add a node that calls a tool, `SERVER/TOOL`."""
        own = _drop_none(tool=tool, arguments=arguments)
        return self._add("tool", node_id, own, after, when, fields)

    def condition(
        self,
        node_id: str,
        cases: Mapping[str, str] | str,
        *,
        after: str = "",
        when: str = "",
        **fields: object,
    ) -> Self:
        """Add a condition: CEL expressions by their labels, or a function `module:name`."""
        own: dict[str, Any] = {"handler": cases}
        if not isinstance(cases, str):
            own = {"cases": [{"label": label, "when": text} for label, text in cases.items()]}
        return self._add("condition", node_id, own, after, when, fields)

    def action(
        self,
        node_id: str,
        handler: str = "",
        *,
        after: str = "",
        when: str = "",
        **fields: object,
    ) -> Self:
        """Add an action: a built-in one or a function `module:name`; `set` sets values."""
        own = {"handler": handler} if handler else {}
        return self._add("action", node_id, own, after, when, fields)

    def approval(
        self, node_id: str, question: str, *, after: str = "", when: str = "", **fields: object
    ) -> Self:
        """Add a question to a person. Its labels are `approved` and `rejected`."""
        return self._add("approval", node_id, {"question": question}, after, when, fields)

    def parallel(
        self, node_id: str, join: str, *, after: str = "", when: str = "", **fields: object
    ) -> Self:
        """Add a node whose edges are all followed, until they meet at `join`."""
        return self._add("parallel", node_id, {"join": join}, after, when, fields)

    def wait(self, node_id: str, *, after: str = "", when: str = "", **fields: object) -> Self:
        """Add a wait for a `message`, a `duration`, or both. The condition is `matching`."""
        own = {"when": fields.pop("matching")} if "matching" in fields else {}
        return self._add("wait", node_id, own, after, when, fields)

    def workflow(
        self,
        node_id: str,
        workflow: str,
        inputs: Mapping[str, Any] | None = None,
        *,
        after: str = "",
        when: str = "",
        **fields: object,
    ) -> Self:
        """Add a node that runs another workflow."""
        own = _drop_none(workflow=workflow, inputs=inputs)
        return self._add("workflow", node_id, own, after, when, fields)

    def edge(self, source: str, target: str, when: str = "", *, priority: int = 0) -> Self:
        """Add an edge; `when` is the label of the source that it is for."""
        edge: dict[str, Any] = {"from": source, "to": target}
        if when:
            edge["condition"] = when
        if priority:
            edge["priority"] = priority
        self._edges.append(edge)
        return self

    def build(self, names: MeshNames | None = None) -> Workflow:
        """Return the workflow.

        Raises:
            ConfigurationError: it has faults. The text names all of them.
        """
        return load_workflow_dict(self.to_dict(), names)

    def to_dict(self) -> dict[str, Any]:
        """Return the workflow as a file has it, also if it has faults."""
        return {**self._fields, "nodes": list(self._nodes), "edges": list(self._edges)}

    def _add(
        self,
        node_type: str,
        node_id: str,
        own: Mapping[str, Any],
        after: str,
        when: str,
        fields: Mapping[str, Any],
    ) -> Self:
        self._nodes.append({"id": node_id, "type": node_type, **own, **fields})
        source = after or self._last
        if source:
            self.edge(source, node_id, when)
        self._last = "" if node_type == "end" else node_id
        return self


def _drop_none(**values: object) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def dump_workflow(workflow: Workflow, file_format: str = "yaml") -> str:
    """Return the text of a file, `yaml` or `json`, that is read as this workflow."""
    value = workflow_to_dict(workflow)
    if file_format == "json":
        return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, indent=2
    )
    return text


def workflow_to_dict(workflow: Workflow) -> dict[str, Any]:
    """Return a workflow as a file has it, without fields that have their default."""
    value = workflow.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    # The type of a node is the default of its class.
    nodes = [
        {"id": node.id, "type": node.type, **dumped}
        for node, dumped in zip(workflow.nodes, value["nodes"], strict=True)
    ]
    first: dict[str, Any] = {"name": workflow.name, "version": workflow.version}
    return {**first, **value, "nodes": nodes}


def save_workflow(workflow: Workflow, path: str | Path) -> None:
    """Write a workflow file: JSON if its name ends so, else YAML."""
    path = Path(path)
    text = dump_workflow(workflow, "json" if path.suffix == ".json" else "yaml")
    path.write_text(text, encoding="utf-8")


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ANN401
        """Return True: values that are there twice are written twice."""
        return True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)
