"""What the mesh has logged during a test."""

import logging

import pytest


def find_logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the records of our own loggers.

    Other libraries, and tasks of earlier tests that are freed only now, log whenever they like.
    """
    return [record for record in caplog.records if record.name.startswith("trunkline")]
