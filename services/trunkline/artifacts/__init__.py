"""Content too big for an event: files beside the journal, named by references in parts."""

from trunkline.artifacts.blobs import Blob, Blobs, blobs_beside
from trunkline.artifacts.references import Reference, find_reference

__all__ = ["Blob", "Blobs", "Reference", "blobs_beside", "find_reference"]
