"""The mesh's test instrument: does on request what agents do by accident."""

from trunkline.agents.echo.agent import echo

__all__ = ["echo"]
