"""Registers webhooks: validates a client's configuration and stores it with its task."""

import re
from collections.abc import Iterator
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import invalid_params
from trunkline.a2a_wire.protocol import V0_1
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host import PushConfig
from trunkline.mesh.client.host_queries import query_task
from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard, AddressRefusedError
from trunkline.v1 import task_service_pb2

ID_LENGTH: Final = 200
TOKEN_LENGTH: Final = 4096
CREDENTIALS_LENGTH: Final = 8192

# The id is a path segment over HTTP+JSON.
_ID = re.compile(r"[A-Za-z0-9._~:@!$&'()*+,;=\-]+", re.ASCII)
# A header value without escaping (RFC 9110, 5.5), without spaces at its ends.
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~\-]{1,64}", re.ASCII)


class WebhookRegistrations:
    """The webhooks of tasks. Callers must check access to the task first.

    The host of a task never returns the secrets of its webhooks.
    """

    def __init__(self, directory: Directory, guard: AddressGuard) -> None:
        self._directory = directory
        self._guard = guard

    async def validate(
        self, config: PushConfig, *, task_id: str, version: str, where: str = ""
    ) -> PushConfig:
        """Validate a configuration; return a copy with the task id.

        `where` is the path of the configuration in the request, with a trailing dot. In v0.1 the
        webhook's id is a task id of any form, so it is not checked.

        Raises:
            WireError: The configuration is invalid; the violations name the fields.
        """
        violations = list(_violations(config, task_id))
        if version != V0_1:
            violations += _id_violations(config.id)
        if not violations:
            try:
                await self._guard.check(config.url)
            except AddressRefusedError as error:
                violations.append(("url", str(error)))
        if violations:
            raise invalid_params(*((where + name, problem) for name, problem in violations))
        stored = PushConfig()
        stored.CopyFrom(config)
        stored.task_id = task_id
        return stored

    async def create(self, config: PushConfig, *, account: str, version: str) -> PushConfig:
        """Store a validated webhook in place of a webhook with its id; return it with its id."""
        client = self._directory.client_for_task(config.task_id)
        return await client.set_push_config(config, account=account, version=version)

    async def get(self, task_id: str, config_id: str, *, account: str) -> PushConfig:
        """Return a webhook; an empty id is the first one. WebhookNotFoundError: no such webhook."""
        request = task_service_pb2.GetPushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        response = await query_task(
            self._directory, task_id, lambda host: host.tasks.GetPushNotificationConfig(request)
        )
        return response.config

    async def list(
        self, task_id: str, *, account: str
    ) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
        """Return all webhooks of a task on one page, because a task has few."""
        request = task_service_pb2.ListPushNotificationConfigsRequest(
            account=account, task_id=task_id
        )
        response = await query_task(
            self._directory, task_id, lambda host: host.tasks.ListPushNotificationConfigs(request)
        )
        return a2a_pb2.ListTaskPushNotificationConfigsResponse(configs=response.configs)

    async def delete(self, task_id: str, config_id: str, *, account: str) -> None:
        """Remove a webhook. The removal of an unknown webhook succeeds."""
        request = task_service_pb2.DeletePushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        client = self._directory.client_for_task(task_id)
        await client.tasks.DeletePushNotificationConfig(request)


def _violations(config: PushConfig, task_id: str) -> Iterator[tuple[str, str]]:
    if config.task_id not in ("", task_id):
        yield "taskId", "is not the task of this request; leave it out"
    if not config.url:
        yield "url", "is required"
    if config.token and not _fits(config.token, TOKEN_LENGTH):
        yield "token", _must_fit(TOKEN_LENGTH)
    authentication = config.authentication
    if authentication.scheme and _SCHEME.fullmatch(authentication.scheme) is None:
        yield "authentication.scheme", "must be the name of an HTTP scheme, such as Bearer"
    if authentication.credentials and not authentication.scheme:
        yield "authentication.scheme", "is required with credentials, for example Bearer"
    if authentication.credentials and not _fits(authentication.credentials, CREDENTIALS_LENGTH):
        yield "authentication.credentials", _must_fit(CREDENTIALS_LENGTH)


def _id_violations(config_id: str) -> Iterator[tuple[str, str]]:
    if config_id and (len(config_id) > ID_LENGTH or _ID.fullmatch(config_id) is None):
        yield "id", f"must be at most {ID_LENGTH} letters, digits and marks of a URL's path"


def _fits(text: str, length: int) -> bool:
    return len(text) <= length and _VALUE.fullmatch(text) is not None


def _must_fit(length: int) -> str:
    return f"must fit a header: at most {length} printable ASCII characters"
