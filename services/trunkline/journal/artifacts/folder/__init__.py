"""Files of tasks in a folder beside their journal."""

from trunkline.journal.artifacts.folder.store import FolderBlobStore, blob_folder

__all__ = ["FolderBlobStore", "blob_folder"]
