"""The listener of a server with TLS closes connections above its limit of open ones."""

import socket
from contextlib import ExitStack

import pytest

from trunkline_bridge.http.server import LimitedListener


def test_closed_connections_do_not_count_although_they_are_in_memory() -> None:
    with ExitStack() as stack:
        plain = socket.create_server(("127.0.0.1", 0))
        listener = stack.enter_context(LimitedListener(plain, 2))

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(listener.getsockname()))

        connect()
        connect()
        first, _ = listener.accept()
        second, _ = listener.accept()
        stack.enter_context(second)
        refused = connect()
        with pytest.raises(ConnectionAbortedError):
            listener.accept()
        assert refused.recv(1) == b""
        first.close()
        connect()
        third, _ = listener.accept()
        stack.enter_context(third)
        assert third.fileno() >= 0
