"""Tests of the webhook sender over real sockets."""

import asyncio
import base64
import ssl
from collections.abc import Sequence

import pytest

from harness.remote.certificates import self_signed
from harness.remote.measurements import measuring
from harness.remote.webhook_receiver import (
    OK,
    Answer,
    ReceivedPost,
    WebhookReceiver,
    accept,
    hang,
    open_receiver,
    status,
)
from trunkline.errors import ConfigurationError
from trunkline.mesh.client.safe_fetch.address_guard import AddressGuard
from trunkline.v1 import push_notification_pb2, webhook_service_pb2
from trunkline_bridge.a2a.webhooks.attempt import AttemptResult
from trunkline_bridge.a2a.webhooks.sender import (
    MAX_CONCURRENT_PER_HOST,
    Notification,
    WebhookSender,
)
from trunkline_bridge.a2a.webhooks.signatures import WebhookSigner, generate_secret

POST = Notification("3.0", b'{"statusUpdate":{}}', "application/a2a+json")
LOOPBACK = ["127.0.0.1"]


class Resolver:
    """A resolver that returns the addresses of each lookup in turn, and repeats the last ones."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)

    async def __call__(self, _host: str) -> Sequence[str]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def webhook(url: str, *, token: str = "") -> webhook_service_pb2.Webhook:
    config = push_notification_pb2.TaskPushNotificationConfig(
        id="c-1", task_id="t-1", url=url, token=token
    )
    return webhook_service_pb2.Webhook(config=config, version="1.0", agent="echo")


async def post_once(receiver: WebhookReceiver, *, limit_s: float = 10.0) -> AttemptResult:
    async with WebhookSender(AddressGuard(LOOPBACK), limit_s=limit_s) as sender:
        return await sender.send(webhook(receiver.url), POST)


async def test_a_scheme_without_credentials_sends_no_authorization() -> None:
    async with open_receiver() as receiver, WebhookSender(AddressGuard(LOOPBACK)) as sender:
        webhook_ = webhook(receiver.url)
        webhook_.config.authentication.scheme = "Bearer"
        await sender.send(webhook_, POST)
    headers = receiver.accepted[0].headers
    assert "authorization" not in headers
    assert "x-a2a-notification-token" not in headers
    assert "webhook-signature" not in headers


def test_signatures_are_those_of_standard_webhooks() -> None:
    # The vector of the standard's reference libraries.
    signer = WebhookSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signer.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {"webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}


def test_posts_are_signed_with_both_secrets_during_rotation() -> None:
    old, new = generate_secret(), generate_secret()
    signatures = WebhookSigner(f"{new} {old}").headers("t.1", 1, b"{}")["webhook-signature"]
    assert signatures.split() == [
        WebhookSigner(secret).headers("t.1", 1, b"{}")["webhook-signature"] for secret in (new, old)
    ]


@pytest.mark.parametrize(
    "text",
    ["", " ", "secret", "whsec_", "whsec_!!!!", "whsec_" + base64.b64encode(b"short").decode()],
)
def test_an_invalid_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WebhookSigner(text)
    assert text.strip() in ("", "whsec_", "secret") or text not in str(caught.value)


@pytest.mark.parametrize("code", [200, 299])
async def test_every_2xx_is_success(code: int) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return status(code)

    async with open_receiver(decide) as receiver:
        assert await post_once(receiver) == AttemptResult()


@pytest.mark.parametrize("code", [400, 503])
async def test_other_statuses_are_failures_with_the_status(code: int) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return status(code)

    with measuring() as measured:
        async with open_receiver(decide) as receiver:
            result = await post_once(receiver)
        assert measured.of("trunkline.webhook.attempt.duration") == {("echo", str(code)): 1}
    assert result == AttemptResult(f"it answered {code}", str(code))


@pytest.mark.parametrize(("code", "expected_s"), [(429, 120), (503, 120), (500, 0)])
async def test_the_retry_after_of_a_busy_receiver_is_returned(code: int, expected_s: float) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return status(code, "Retry-After: 120")

    async with open_receiver(decide) as receiver:
        assert (await post_once(receiver)).retry_after_s == expected_s


@pytest.mark.parametrize("code", [302, 308])
async def test_redirects_are_not_followed(code: int) -> None:
    async with open_receiver() as other:

        async def decide(_received: ReceivedPost) -> Answer:
            return status(code, f"location: {other.url}")

        async with open_receiver(decide) as receiver:
            result = await post_once(receiver)
        assert str(code) in result.problem
        assert other.connections == 0


async def test_a_hanging_receiver_times_out() -> None:
    async with open_receiver(hang) as receiver:
        result = await post_once(receiver, limit_s=0.2)
    assert result.problem == "no answer within 0.2 s"


async def test_an_endless_response_is_cut_off() -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n" + b"x" * 200_000

    async with open_receiver(decide) as receiver:
        assert await post_once(receiver) == AttemptResult()


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 banana\r\n\r\n"])
async def test_a_receiver_that_does_not_speak_http_is_a_failure(answer: bytes | None) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return answer

    async with open_receiver(decide) as receiver:
        assert (await post_once(receiver, limit_s=0.3)).problem


async def test_a_refused_connection_is_a_failure_without_an_address() -> None:
    async with open_receiver() as receiver:
        pass
    result = await post_once(receiver)
    assert result.problem == "it can't be connected to"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_receiver() as proxy, open_receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert await post_once(receiver) == AttemptResult()
        assert proxy.connections == 0


async def test_a_name_that_resolves_differently_at_the_post_is_not_connected_to(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_context, client_context = certificates
    async with open_receiver(context=server_context) as receiver:
        url = receiver.url.replace("127.0.0.1", "hooks.example")
        guard = AddressGuard(resolve=Resolver(["93.184.215.14"], LOOPBACK))
        await guard.check(url)
        async with WebhookSender(guard, ssl_context=client_context) as sender:
            result = await sender.send(webhook(url), POST)
    assert result.problem.startswith("its URL must lead to a host that is reachable from")
    assert receiver.connections == 0


async def test_the_tls_certificate_is_verified_for_the_name(
    certificates: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server_context, client_context = certificates
    async with open_receiver(context=server_context) as receiver:
        port = receiver.url.split("/")[2].rpartition(":")[2]
        guard = AddressGuard(["hooks.example", "other.example"], Resolver(LOOPBACK))
        async with WebhookSender(guard, ssl_context=client_context) as sender:
            url = receiver.url.replace("127.0.0.1", "hooks.example")
            assert await sender.send(webhook(url), POST) == AttemptResult()
            other = receiver.url.replace("127.0.0.1", "other.example")
            refused = await sender.send(webhook(other), POST)
        assert receiver.accepted[0].headers["host"] == f"hooks.example:{port}"
        assert refused.problem.startswith("its certificate is not accepted: Hostname mismatch")
        async with WebhookSender(guard) as strict_sender:
            unknown = await strict_sender.send(webhook(url), POST)
    assert unknown.problem.startswith("its certificate is not accepted")
    assert len(receiver.all) == 1


async def test_concurrent_posts_to_one_host_are_limited() -> None:
    released = asyncio.Event()

    async def decide(_received: ReceivedPost) -> Answer:
        await released.wait()
        return OK

    async with (
        open_receiver(decide) as receiver,
        open_receiver(accept) as other,
        WebhookSender(AddressGuard(["127.0.0.1", "localhost"])) as sender,
        asyncio.TaskGroup() as group,
    ):
        posts = [
            group.create_task(sender.send(webhook(receiver.url), POST))
            for _ in range(3 * MAX_CONCURRENT_PER_HOST)
        ]
        await receiver.until(lambda seen: len(seen.all) == MAX_CONCURRENT_PER_HOST)
        # Posts to another host do not wait for these.
        other_webhook = webhook(other.url.replace("127.0.0.1", "localhost"))
        assert await sender.send(other_webhook, POST) == AttemptResult()
        released.set()
        assert [await post for post in posts] == [AttemptResult()] * len(posts)
    assert receiver.most_at_once == MAX_CONCURRENT_PER_HOST


@pytest.fixture(scope="module")
def certificates(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the TLS contexts of a server and of a client that trusts it, for `hooks.example`."""
    server_context, certificate = self_signed(
        tmp_path_factory.mktemp("certificates"), "hooks.example"
    )
    return server_context, ssl.create_default_context(cafile=str(certificate))
