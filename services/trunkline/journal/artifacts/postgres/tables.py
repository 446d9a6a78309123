"""The tables of the files in PostgreSQL.

`trunkline_blobs` has a row for each file, also while it is uploaded. The row has the id of its
newest writer, and each write compares it. The bytes are in `trunkline_blob_chunks`, under the
random name of the content.

A content is removed in two steps: its row leaves `trunkline_blobs`, and its name enters
`trunkline_removed_contents`. The chunks are deleted an hour later, so a reader that has begun can
end.
"""

from typing import Final

from trunkline.core.postgres import Schema

_TABLES: Final = (
    # The checksum is empty until the file is complete.
    """CREATE TABLE trunkline_blobs (
        task_id text NOT NULL,
        blob_id text NOT NULL,
        journal_id text NOT NULL,
        content text NOT NULL,
        writer text NOT NULL,
        size_bytes bigint NOT NULL DEFAULT 0,
        sha256 text NOT NULL DEFAULT '',
        media_type text NOT NULL,
        filename text NOT NULL,
        written timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (task_id, blob_id)
    )""",
    "CREATE INDEX trunkline_blobs_by_journal ON trunkline_blobs (journal_id, task_id)",
    """CREATE INDEX trunkline_blobs_incomplete
        ON trunkline_blobs (journal_id, written) WHERE sha256 = ''""",
    # A chunk is its first `size_bytes` bytes, because a later writer may have truncated the file.
    # The bytes are in the row, or in an object of an object store.
    """CREATE TABLE trunkline_blob_chunks (
        content text NOT NULL,
        position bigint NOT NULL,
        size_bytes integer NOT NULL,
        body bytea,
        object text,
        PRIMARY KEY (content, position)
    )""",
    # Files are often compressed.
    "ALTER TABLE trunkline_blob_chunks ALTER COLUMN body SET STORAGE EXTERNAL",
    """CREATE TABLE trunkline_removed_contents (
        content text PRIMARY KEY,
        removed timestamptz NOT NULL DEFAULT now()
    )""",
    "CREATE INDEX trunkline_removed_contents_by_time ON trunkline_removed_contents (removed)",
)

FILES: Final = Schema("files", (_TABLES,))
"""The tables of the files of all journals of a mesh."""
