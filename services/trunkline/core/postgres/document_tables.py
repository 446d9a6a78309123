"""The tables of indexed documents, which the research agent's package reads and writes."""

from typing import Final

from trunkline.core.postgres.schema import Schema

DOCUMENTS: Final = Schema(
    "documents",
    [
        [
            # The dictionary of English without stop words: searches leave out their own.
            "CREATE TEXT SEARCH DICTIONARY trunkline_english "
            "(TEMPLATE = snowball, LANGUAGE = english)",
            "CREATE TEXT SEARCH CONFIGURATION trunkline_words (COPY = simple)",
            "ALTER TEXT SEARCH CONFIGURATION trunkline_words ALTER MAPPING FOR asciiword, word, "
            "numword WITH trunkline_english",
            # last_id: the last id of a document or passage. A write locks the row first.
            "CREATE TABLE trunkline_document_revision (one integer PRIMARY KEY CHECK (one = 1), "
            "revision bigint NOT NULL, "
            "last_id bigint NOT NULL)",
            "INSERT INTO trunkline_document_revision VALUES (1, 1, 0)",
            # path_hash: a path may be longer than an index allows
            "CREATE TABLE trunkline_documents (id bigint PRIMARY KEY, "
            "path_hash text NOT NULL UNIQUE, path text NOT NULL, name text NOT NULL, "
            "title text NOT NULL, media_type text NOT NULL, size_bytes bigint NOT NULL, "
            "modified_ns bigint NOT NULL, page_count integer NOT NULL, "
            "passage_count integer NOT NULL, added_at text NOT NULL)",
            "CREATE TABLE trunkline_passages (id bigint PRIMARY KEY, "
            "document_id bigint NOT NULL REFERENCES trunkline_documents ON DELETE CASCADE, "
            "headings text NOT NULL, text text NOT NULL, page integer, line integer, "
            "words tsvector NOT NULL)",
            "CREATE INDEX trunkline_passages_of_document ON trunkline_passages (document_id)",
            "CREATE INDEX trunkline_passages_by_word ON trunkline_passages USING gin (words)",
            "CREATE TABLE trunkline_passage_vectors (passage_id bigint PRIMARY KEY REFERENCES "
            "trunkline_passages ON DELETE CASCADE, model text NOT NULL, vector real[] NOT NULL)",
            "CREATE INDEX trunkline_passage_vectors_by_model ON trunkline_passage_vectors (model)",
        ]
    ],
)
