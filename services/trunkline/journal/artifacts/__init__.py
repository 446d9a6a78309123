"""Files of tasks, for content too large for an event. Parts refer to them by URL."""

from trunkline.journal.artifacts.blob_store import Blob, BlobStore, BlobWriter
from trunkline.journal.artifacts.references import Reference, parse_reference

__all__ = ["Blob", "BlobStore", "BlobWriter", "Reference", "parse_reference"]
