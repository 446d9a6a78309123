"""An embedding model is opened by its name, and the local one needs no provider."""

import sys

import numpy as np
import pytest

from trunkline.core.settings import ModelSettings
from trunkline.embeddings import EmbeddingModel
from trunkline.errors import ConfigurationError


def test_the_local_model_puts_texts_of_near_meaning_near_each_other() -> None:
    encoder = EmbeddingModel(name="local:minilm").open()

    texts = ("How warm is it outside?", "What is the weather like?", "The invoice is overdue.")
    vectors = encoder.encode(texts)

    assert vectors.shape == (3, 384)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near >= encoder.min_cosine > far
    # A text has the same vector alone and beside a longer one; a text over the limit is cut.
    long = encoder.encode([texts[0], "word " * 5000])
    assert long[0] @ vectors[0] == pytest.approx(1, abs=0.01)


def test_only_known_providers_can_be_named() -> None:
    for name in ("unknown:x", "openai", "openai:", "x", "local:other"):
        with pytest.raises(ConfigurationError, match="is not one of: local:minilm, openai:NAME"):
            EmbeddingModel(name=name).open()


@pytest.mark.parametrize("module", ["numpy", "langchain_openai"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'trunkline\[embeddings,openai\]'"):
        EmbeddingModel.from_settings("openai:small", {})


def test_the_url_and_the_key_come_from_the_model_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "usual")
    monkeypatch.setenv("MY_KEY", "mine")
    provider = ModelSettings(base_url="http://provider/v1", api_key_env="MY_KEY")

    monkeypatch.setenv("OPENAI_BASE_URL", "http://usual/v1")

    disabled = EmbeddingModel.from_settings("", {})
    default = EmbeddingModel.from_settings("openai:small", {})
    with_provider = EmbeddingModel.from_settings("openai:small", {"openai": provider})
    own = ModelSettings(base_url="http://own/v1")
    with_model = EmbeddingModel.from_settings(
        "openai:small", {"openai": provider, "openai:small": own}
    )

    assert disabled is None
    assert default == EmbeddingModel(
        name="openai:small", base_url="http://usual/v1", api_key="usual"
    )
    assert with_provider is not None
    assert (with_provider.base_url, with_provider.api_key) == ("http://provider/v1", "mine")
    assert with_model is not None
    assert (with_model.base_url, with_model.api_key) == ("http://own/v1", "mine")
    assert "mine" not in repr(with_model)
