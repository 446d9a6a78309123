"""Embeddings: vectors of texts, by which texts of near meaning are found."""

from trunkline.embeddings.model import EmbeddingModel, TextEncoder

__all__ = ["EmbeddingModel", "TextEncoder"]
