"""A stand-in for Argo CD's API on a real socket.

Paths, parameters, objects and errors follow `/swagger.json` of Argo CD 2 and 3. Without a token,
only the version can be read. A missing application gives the same error as a forbidden one. A
second sync is refused while one runs.
"""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harness.remote.web_server import serving

TOKEN = "argocd-token"
COMMIT = "53e28ff20cc530b9ada2173fbbd64d48338583ba"

Json = dict[str, Any]


def application(name: str, *, sync: str = "Synced", health: str = "Healthy") -> Json:
    """Return an Application object with the fields that our client reads."""
    resources = [
        {
            "version": "v1",
            "kind": "Service",
            "namespace": name,
            "name": f"{name}-ui",
            "status": sync,
        },
        {
            "group": "apps",
            "version": "v1",
            "kind": "Deployment",
            "namespace": name,
            "name": f"{name}-ui",
            "status": sync,
            "health": {"status": health, "message": "" if health == "Healthy" else "2 of 3 ready"},
        },
    ]
    source = {
        "repoURL": "https://git.example/apps.git",
        "path": name,
        "targetRevision": "HEAD",
    }
    history = [
        {
            "id": 0,
            "revision": "a" * 40,
            "deployedAt": "2026-01-02T03:04:05Z",
            "initiatedBy": {"username": "ada"},
            "source": source,
        },
        {
            "id": 1,
            "revision": COMMIT,
            "deployedAt": "2026-02-02T03:04:05Z",
            "initiatedBy": {"automated": True},
            "source": source,
        },
    ]
    return {
        "metadata": {"name": name, "namespace": "argocd"},
        "spec": {
            "project": "default",
            "source": source,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": name},
        },
        "status": {
            "sync": {"status": sync, "revision": COMMIT},
            "health": {"status": health},
            "resources": resources,
            "history": history,
            "operationState": {
                "phase": "Succeeded",
                "message": "successfully synced",
                "startedAt": "2026-02-02T03:04:00Z",
                "finishedAt": "2026-02-02T03:04:05Z",
            },
        },
    }


def _deployment(replicas: int) -> str:
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop-ui"},
        "spec": {"replicas": replicas},
    }
    return json.dumps(manifest)


@dataclass
class ArgoCDServer:
    """The applications of the server, and its record of requests."""

    url: str = ""
    applications: dict[str, Json] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of each request."""
    synced: list[Json] = field(default_factory=list)
    """The bodies of the accepted sync requests."""
    running: set[str] = field(default_factory=set)
    """Applications that an operation runs on."""

    async def version(self, request: Request) -> Response:
        self.requests.append((request.method, request.url.path))
        version_info = {"Version": "v3.2.1+8c4ab63"}
        if _is_known(request):
            version_info |= {
                "BuildDate": "2026-01-30T17:48:12Z",
                "Platform": "linux/amd64",
                "GoVersion": "go1.25.0",
                "KustomizeVersion": "v5.7.0 2025-06-28T07:00:07Z",
                "HelmVersion": "v3.18.4+gd80839c",
                "KubectlVersion": "v0.34.0",
            }
        return JSONResponse(version_info)

    async def list(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        projects = request.query_params.getlist("projects")
        items = [
            item
            for item in self.applications.values()
            if not projects or item["spec"]["project"] in projects
        ]
        return JSONResponse({"metadata": {}, "items": items or None})

    async def get(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        return JSONResponse(self.applications[request.path_params["name"]])

    async def managed_resources(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        application_found = self.applications[request.path_params["name"]]
        is_synced = application_found["status"]["sync"]["status"] == "Synced"
        desired = _deployment(1 if is_synced else 3)
        deployment = {
            "group": "apps",
            "kind": "Deployment",
            "namespace": "shop",
            "name": "shop-ui",
            "targetState": desired,
            "liveState": _deployment(1),
            "normalizedLiveState": _deployment(1),
            "predictedLiveState": desired,
        }
        added = {
            "kind": "ConfigMap",
            "namespace": "shop",
            "name": "new",
            "targetState": '{"data": {"a": "b"}, "kind": "ConfigMap"}',
            "liveState": "null",
            "normalizedLiveState": "null",
            "predictedLiveState": '{"data": {"a": "b"}, "kind": "ConfigMap"}',
        }
        return JSONResponse({"items": [deployment] if is_synced else [deployment, added]})

    async def sync(self, request: Request) -> Response:
        if refusal := self._refused(request):
            return refusal
        name = request.path_params["name"]
        if name in self.running:
            return _error(400, 9, "another operation is already in progress")
        body = await request.json()
        self.synced.append({"name": name, **body})
        application_found = self.applications[name]
        state = {"phase": "Running", "operation": {"sync": body}}
        return JSONResponse(
            application_found | {"status": application_found["status"] | {"operationState": state}}
        )

    def _refused(self, request: Request) -> Response | None:
        self.requests.append((request.method, request.url.path))
        if not _is_known(request):
            return _error(401, 16, "no session information")
        name = request.path_params.get("name")
        if name is not None and name not in self.applications:
            return _error(403, 7, "permission denied")
        return None


def _is_known(request: Request) -> bool:
    return request.headers.get("authorization") == f"Bearer {TOKEN}"


def _error(status: int, code: int, message: str) -> Response:
    return JSONResponse({"error": message, "code": code, "message": message}, status)


@contextmanager
def argocd_server(
    *, certificate: Path | None = None, key: Path | None = None
) -> Iterator[ArgoCDServer]:
    """Serve for the length of a block, at any port; with a certificate by https."""
    server = ArgoCDServer()
    for item in (
        application("guestbook"),
        application("shop", sync="OutOfSync", health="Degraded"),
    ):
        server.applications[item["metadata"]["name"]] = item
    base = "/api/v1/applications"
    app = Starlette(
        routes=[
            Route("/api/version", server.version),
            Route(base, server.list),
            Route(f"{base}/{{name}}", server.get),
            Route(f"{base}/{{name}}/managed-resources", server.managed_resources),
            Route(f"{base}/{{name}}/sync", server.sync, methods=["POST"]),
        ]
    )
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key, "ssl_version": ssl.PROTOCOL_TLS_SERVER}
    with serving(app, "argocd", headers=[("connection", "close")], **tls) as port:
        server.url = f"https://localhost:{port}" if certificate else f"http://127.0.0.1:{port}"
        yield server
