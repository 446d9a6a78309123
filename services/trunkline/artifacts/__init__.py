"""Files beside a journal, for content too large for an event. Parts refer to them by URL."""

from trunkline.artifacts.blob_store import Blob, BlobStore, blob_folder
from trunkline.artifacts.references import Reference, parse_reference

__all__ = ["Blob", "BlobStore", "Reference", "blob_folder", "parse_reference"]
