"""Documents that agents may quote: read, cut into passages with their places, and searched."""

from trunkline.documents.adding import Added, add
from trunkline.documents.passages import Document, Found
from trunkline.documents.search import search
from trunkline.documents.store import FILE_NAME, DocumentStore

__all__ = ["FILE_NAME", "Added", "Document", "DocumentStore", "Found", "add", "search"]
