"""The circuit breaker of one MCP server, and the rules for its successes and failures."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
from trunkline.mesh.client.breaker import Breaker, BreakerSettings


class ServerBreaker(Breaker):
    """The circuit breaker around one server's starts and calls.

    Failures are: a failed start, a call beyond the server's own limit, an invalid answer, and the
    server's end during calls. A tool that returns an error counts as a success. A call that its
    caller cancels, or whose own deadline expires, does not count.
    """

    def __init__(
        self, server: str, settings: BreakerSettings, *, on_change: Callable[[], None]
    ) -> None:
        """`on_change` is called after a success or failure that changes the state."""
        super().__init__(
            f"tool server {server!r}",
            failures=settings.failures,
            open_s=settings.open_s,
            successes=settings.successes,
        )
        self._server = server
        self._on_change = on_change
        # The session whose end was counted. One end is one failure, for any number of calls.
        self._counted_session: object = None

    @property
    def is_closed(self) -> bool:
        """Calls are not restricted."""
        return self.state == "closed"

    def refusal_error(self) -> ToolServerUnavailableError:
        """Return the error for a refused call."""
        return ToolServerUnavailableError(self._server, self.problem)

    def on_start(self) -> None:
        """Record that the server is ready after a start that no call caused.

        The start counts as a success only while the breaker is not closed. Otherwise only calls
        count.
        """
        if not self.is_closed:
            self.on_success()

    def on_success(self) -> None:
        """Record a success, and report a change of the state."""
        with self._reporting_change():
            super().on_success()

    def on_failure(self, problem: str = "") -> None:
        """Record a failure, and report a change of the state."""
        with self._reporting_change():
            super().on_failure(problem)

    @contextmanager
    def track_call(self, session: object) -> Iterator[None]:
        """Count the block as one call on `session`.

        Raises:
            ToolServerUnavailableError: calls are refused at the moment.
        """
        try:
            self.check()
        except PeerUnavailableError as refused:
            raise ToolServerUnavailableError(self._server, refused.problem) from None
        try:
            yield
        except ToolServerUnavailableError as error:
            if session is not self._counted_session:
                self._counted_session = session
                self.on_failure(error.problem)
            raise
        except PeerProtocolError as error:
            self.on_failure(error.problem)
            raise
        except BaseException:
            self.on_abandon()
            raise
        self.on_success()

    @contextmanager
    def _reporting_change(self) -> Iterator[None]:
        before = self.state
        yield
        if self.state != before:
            self._on_change()
