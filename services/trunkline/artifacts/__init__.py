"""Content too big for an event: files beside the journal, named by references in parts."""

from trunkline.artifacts.blob_store import Blob, BlobStore, blob_folder
from trunkline.artifacts.references import Reference, parse_reference

__all__ = ["Blob", "BlobStore", "Reference", "blob_folder", "parse_reference"]
