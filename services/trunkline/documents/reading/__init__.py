"""Turns files into text with places. What reads a file runs in a process of its own."""

from trunkline.documents.reading.kinds import Extract, Unreadable, kind_of
from trunkline.documents.reading.reader import Reader

__all__ = ["Extract", "Reader", "Unreadable", "kind_of"]
