"""Converts the JSON of Argo CD's API to short facts, and renders them as lines of text."""

import difflib
import json
from collections.abc import Iterable, Iterator
from typing import Final

from typing_extensions import TypedDict

from trunkline_agents.argocd.client import Json

_REVISION_CHARS: Final = 12
_MESSAGE_CHARS: Final = 300
_DIFF_LINES: Final = 400


class Application(TypedDict):
    """`sync` is Synced, OutOfSync or Unknown; `health` Healthy, Progressing, Degraded, …."""

    name: str
    namespace: str
    project: str
    sync: str
    health: str
    revision: str
    repository: str
    path: str
    target_revision: str
    destination: str
    destination_namespace: str


class Resource(TypedDict):
    """A resource of an application."""

    kind: str
    name: str
    namespace: str
    sync: str
    health: str
    message: str


class Deployment(TypedDict):
    """`by` is the user who started it, or `automated`."""

    id: int
    revision: str
    deployed_at: str
    by: str


class Change(TypedDict):
    """A change that a sync would make; `diff` is unified, from the live to the desired state."""

    kind: str
    name: str
    namespace: str
    change: str
    diff: str


def parse_application(resource: Json) -> Application:
    """Return the main facts of an Application object."""
    spec, status = _object(resource, "spec"), _object(resource, "status")
    metadata = _object(resource, "metadata")
    sources = [_object(spec, "source"), *_objects(spec, "sources")]
    source = next((candidate for candidate in sources if candidate), {})
    destination = _object(spec, "destination")
    return Application(
        name=_text(metadata, "name"),
        namespace=_text(metadata, "namespace"),
        project=_text(spec, "project"),
        sync=_text(_object(status, "sync"), "status") or "Unknown",
        health=_text(_object(status, "health"), "status") or "Unknown",
        revision=_get_revision(_object(status, "sync")),
        repository=_text(source, "repoURL"),
        path=_text(source, "path") or _text(source, "chart"),
        target_revision=_text(source, "targetRevision"),
        destination=_text(destination, "name") or _text(destination, "server"),
        destination_namespace=_text(destination, "namespace"),
    )


def render_summary(application: Application) -> str:
    """Return one line about an application."""
    at = f", {abbreviate_revision(application['revision'])}" if application["revision"] else ""
    state = f"{application['sync']}, {application['health']}"
    return f"{application['name']}: {state} (project {application['project']}{at})"


def render_details(application: Application, resource: Json) -> str:
    """Return a few lines about an application."""
    source = " ".join(
        filter(
            None, (application["repository"], application["path"], application["target_revision"])
        )
    )
    destination = " ".join(
        filter(None, (application["destination"], application["destination_namespace"]))
    )
    lines = [render_summary(application), f"source: {source}", f"destination: {destination}"]
    policy = _object(_object(resource, "spec"), "syncPolicy")
    lines.append(f"syncs: {'automatically' if policy.get('automated') else 'on request'}")
    return "\n".join([*lines, *list_problems(resource)])


def list_problems(resource: Json) -> list[str]:
    """Return lines about an application's problems and its last operation."""
    status = _object(resource, "status")
    lines = []
    if message := _cut(_text(_object(status, "health"), "message")):
        lines.append(f"health: {message}")
    conditions = _objects(status, "conditions")
    lines += [
        f"{_text(condition, 'type')}: {_cut(_text(condition, 'message'))}"
        for condition in conditions
    ]
    operation = _object(status, "operationState")
    if phase := _text(operation, "phase"):
        message = _cut(_text(operation, "message"))
        lines.append(f"last operation: {phase}{f', {message}' if message else ''}")
    return lines


def parse_resources(resource: Json) -> list[Resource]:
    """Return the resources of an application."""
    return [
        Resource(
            kind=_text(child, "kind"),
            name=_text(child, "name"),
            namespace=_text(child, "namespace"),
            sync=_text(child, "status"),
            health=_text(_object(child, "health"), "status"),
            message=_cut(_text(_object(child, "health"), "message")),
        )
        for child in _objects(_object(resource, "status"), "resources")
    ]


def is_healthy(resource: Resource) -> bool:
    """Return True if a resource is healthy and in sync."""
    return resource["health"] in {"", "Healthy"} and resource["sync"] in {"", "Synced"}


def parse_history(resource: Json) -> list[Deployment]:
    """Return the deployments of an application, the newest first."""
    history = _objects(_object(resource, "status"), "history")
    deployments = []
    for entry in history:
        by = _object(entry, "initiatedBy")
        deployments.append(
            Deployment(
                id=int(entry.get("id") or 0),
                revision=_get_revision(entry),
                deployed_at=_text(entry, "deployedAt"),
                by=_text(by, "username") or ("automated" if by.get("automated") else ""),
            )
        )
    return sorted(
        deployments,
        key=lambda deployment: (deployment["deployed_at"], deployment["id"]),
        reverse=True,
    )


def list_changes(resources: Iterable[Json]) -> Iterator[Change]:
    """Yield the changes that a sync would make. Argo CD hides the values of secrets."""
    for managed in resources:
        if managed.get("hook"):
            continue
        # The states that Argo CD compares: without the fields that the cluster adds.
        live = _parse_manifest(managed.get("normalizedLiveState") or managed.get("liveState"))
        desired = _parse_manifest(managed.get("predictedLiveState") or managed.get("targetState"))
        if _parse_manifest(managed.get("targetState")) is None:
            desired = None
        if live == desired:
            continue
        change = "create" if live is None else "delete" if desired is None else "change"
        pieces = difflib.unified_diff(
            _lines(live), _lines(desired), "live", "wanted", n=2, lineterm=""
        )
        lines = list(pieces)
        if len(lines) > _DIFF_LINES:
            lines[_DIFF_LINES:] = [f"… and {len(lines) - _DIFF_LINES} more lines"]
        yield Change(
            kind=_text(managed, "kind"),
            name=_text(managed, "name"),
            namespace=_text(managed, "namespace"),
            change=change,
            diff="\n".join(lines),
        )


def abbreviate_revision(revision: str) -> str:
    """Shorten the hash of a commit; versions of charts are returned unchanged."""
    is_hash = len(revision) == 40 and all(char in "0123456789abcdef" for char in revision)
    return revision[:_REVISION_CHARS] if is_hash else revision


def _get_revision(source: Json) -> str:
    # An application with several sources has several revisions.
    several = source.get("revisions")
    revisions = [str(value) for value in several] if isinstance(several, list) else []
    return _text(source, "revision") or ", ".join(revisions)


def _parse_manifest(state: object) -> Json | None:
    """Parse a manifest. Return None for `null` and for text that is no JSON object."""
    try:
        manifest = json.loads(state) if isinstance(state, str) and state else None
    except (ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _lines(manifest: Json | None) -> list[str]:
    if manifest is None:
        return []
    return json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _object(value: Json, key: str) -> Json:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _objects(value: Json, key: str) -> list[Json]:
    inner = value.get(key)
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []


def _text(value: Json, key: str) -> str:
    inner = value.get(key)
    return inner if isinstance(inner, str) else ""


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_CHARS else f"{line[:_MESSAGE_CHARS]}…"
