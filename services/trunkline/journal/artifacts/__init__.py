"""Files beside a journal, for content too large for an event. Parts refer to them by URL."""

from trunkline.journal.artifacts.blob_store import Blob, BlobStore, blob_folder
from trunkline.journal.artifacts.references import Reference, parse_reference

__all__ = ["Blob", "BlobStore", "Reference", "blob_folder", "parse_reference"]
