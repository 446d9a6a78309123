"""How far one MCP server is trusted: its circuit breaker, and what counts for and against it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trunkline.client.breaker import Breaker, BreakerSettings
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)


class ServerBreaker:
    """The breaker around one server's starts and calls.

    A start that fails is a failure, and so are a call that the server does not end in its own
    time, one that it answers with nonsense, and its end during calls. A tool that answers that it
    failed has answered; a caller who leaves, or whose own deadline passes, tells nothing.
    """

    def __init__(
        self, server: str, settings: BreakerSettings, *, on_change: Callable[[], None]
    ) -> None:
        self._server = server
        self._breaker = Breaker(
            f"tool server {server!r}",
            failures=settings.failures,
            open_s=settings.open_s,
            successes=settings.successes,
        )
        self._on_change = on_change
        # Whose end has been counted: one end is one failure, however many calls it met.
        self._mourned: object = None

    @property
    def state(self) -> str:
        """The state of the breaker at this moment."""
        return self._breaker.state

    @property
    def is_closed(self) -> bool:
        """Whether calls may wait for it and go to it without a second thought."""
        return self._breaker.state == "closed"

    @property
    def retry_in_s(self) -> float:
        """Seconds until it may be started or called again; 0 when it may now."""
        return self._breaker.retry_in_s

    @property
    def problem(self) -> str:
        """Why calls are refused, in a line; empty while they aren't."""
        return self._breaker.problem

    def refusal_error(self) -> ToolServerUnavailableError:
        """Return the error of a call that is refused."""
        return ToolServerUnavailableError(self._server, self.problem)

    def on_start(self) -> None:
        """It was started, without a call that asked for it, and is ready.

        Only a call can show that calls work, so before they have failed this counts for nothing.
        """
        if not self.is_closed:
            with self._noticed():
                self._breaker.on_success()

    def on_failure(self, problem: str) -> None:
        """It could not be started, or did not end a call in its own time."""
        with self._noticed():
            self._breaker.on_failure(problem)

    @contextmanager
    def track_call(self, session: object) -> Iterator[None]:
        """Make the block one call, to the server as `session` reaches it.

        Raises:
            ToolServerUnavailableError: calls are refused now.
        """
        try:
            self._breaker.check()
        except PeerUnavailableError as refused:
            raise ToolServerUnavailableError(self._server, refused.problem) from None
        with self._noticed():
            try:
                yield
            except ToolServerUnavailableError as error:
                if session is not self._mourned:
                    self._mourned = session
                    self._breaker.on_failure(error.problem)
                raise
            except PeerProtocolError as error:
                self._breaker.on_failure(error.problem)
                raise
            except BaseException:
                self._breaker.on_abandon()
                raise
            self._breaker.on_success()

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        before = self._breaker.state
        try:
            yield
        finally:
            if self._breaker.state != before:
                self._on_change()
