"""Vectors of the loaded model: of a word in its sentences, layer by layer, and of whole sentences.

What the vectors are worth is measured in `senses` and `similarity`; drawing them in the plane is left
to `projection`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from core.batching import BATCH_TOKENS, in_batches, padded
from core.errors import ModelError, SettingError, TextError
from core.models import LoadedModel
from core.text import Reading, read

if TYPE_CHECKING:
    import pandas as pd
    import torch

Pooling = Literal["mean", "cls"]


@dataclass(frozen=True)
class WordUses:
    """A word in its sentences.

    `vectors` are (uses, layers + 1, hidden) float32. Layer 0 is the static input vector, the token
    part of the embeddings alone, which is all that Word2Vec would have: the same for all uses of a
    form. Layer l is the output of the l-th layer. A word of several pieces is the mean of them.

    `uses` has a row a use: sentence (its number, from 0), text, start, end (characters), form (as
    it stands there), pieces (the tokens it has).
    """

    word: str
    vectors: np.ndarray
    uses: pd.DataFrame
    absent: tuple[int, ...]  # numbers of the sentences without the word, or with it beyond the cut

    @property
    def layers(self) -> int:
        """The number of the last layer."""
        return self.vectors.shape[1] - 1


def embed_sentences(
    m: LoadedModel,
    texts: Sequence[str],
    *,
    pooling: Pooling = "mean",
    layer: int = -1,
    max_tokens: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> np.ndarray:
    """Vectors (texts, hidden) float32 of texts, in their order.

    "mean" is the mean over all tokens that the model reads, [CLS] and [SEP] included, as
    sentence-transformers takes it (Reimers and Gurevych 2019, section 3); "cls" is the vector of the
    first. What is beyond `max_tokens`, or does not fit the model, is cut off. `layer` counts as in transformers: 0 is the
    embedding layer's output, -1 the last layer.
    """
    vectors = np.zeros((len(texts), m.info.hidden), dtype=np.float32)
    for rows, found in embedding(
        m, texts, pooling=pooling, layer=layer, max_tokens=max_tokens, batch_tokens=batch_tokens
    ):
        vectors[rows] = found
    return vectors


def embedding(
    m: LoadedModel,
    texts: Sequence[str],
    *,
    pooling: Pooling = "mean",
    layer: int = -1,
    max_tokens: int | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `embed_sentences`, batch by batch of texts alike in length: row numbers, vectors."""
    import torch

    if not -m.info.layers - 1 <= layer <= m.info.layers:
        raise SettingError(f"There is no layer {layer}: the last one is {m.info.layers}.")
    ids = encode(m, texts, max_tokens)
    deep = layer in (-1, m.info.layers)
    for rows in in_batches([len(row) for row in ids], batch_tokens):
        with torch.inference_mode():
            batch = _inputs(m, [ids[i] for i in rows])
            output = m.model.base_model(**batch, output_hidden_states=not deep)
            hidden = output[0] if deep else output.hidden_states[layer]
            yield rows, _pooled(hidden, batch["attention_mask"], pooling)


def encode(m: LoadedModel, texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
    """Ids of each text with what the model adds, cut to what it reads and to `max_tokens`."""
    frame = m.backend.encode("").ids
    most = min(max_tokens or m.info.max_tokens, m.info.max_tokens)
    room, half = most - len(frame), len(frame) // 2
    bare = m.backend.encode_batch([str(text) for text in texts], add_special_tokens=False)
    return [[*frame[:half], *encoding.ids[:room], *frame[half:]] for encoding in bare]


def embed_word(
    m: LoadedModel,
    word: str,
    sentences: Sequence[str],
    *,
    inflected: bool = False,
    first_only: bool = False,
    batch_tokens: int = BATCH_TOKENS,
) -> WordUses:
    """Vectors of a word in each sentence that has it, at every layer, in one pass a batch.

    Capitals don't matter. With `inflected` the regular forms of the word count too (see `forms`).
    Every occurrence is a use, or the first of each sentence with `first_only`. Raises `TextError`
    if no sentence has the word.
    """
    import pandas as pd

    pattern = _pattern(word, inflected)
    readings = {i: read(m, text) for i, text in enumerate(sentences) if text.strip()}
    found = {i: _occurrences(pattern, reading, first_only) for i, reading in readings.items()}
    rows = [
        {
            "sentence": i,
            "text": readings[i].text,
            "start": start,
            "end": end,
            "form": readings[i].text[start:end],
            "pieces": len(places),
        }
        for i, uses in found.items()
        for start, end, places in uses
    ]
    if not rows:
        raise TextError(f"No sentence has the word “{word.strip()}”.")
    kept = [i for i, uses in found.items() if uses]
    vectors = _word_vectors(
        m,
        [readings[i].input_ids for i in kept],
        [[places for _, _, places in found[i]] for i in kept],
        batch_tokens,
    )
    absent = tuple(i for i in range(len(sentences)) if not found.get(i))
    return WordUses(word.strip(), vectors, pd.DataFrame(rows), absent)


def forms(word: str) -> list[str]:
    """A word and its regular English forms: -s, -es, -ed, -d, -ing, -er, with e dropped, y to i, or
    the last consonant doubled.

    >>> {"bats", "batted", "batting"} <= set(forms("bat")), "dating" in forms("date")
    (True, True)
    """
    endings = ("s", "es", "ed", "d", "ing", "er")
    stems = [word]
    if word.endswith("e"):
        stems.append(word[:-1])
    elif word.endswith("y"):
        stems.append(word[:-1] + "i")
    elif word and word[-1] not in "aiouwxy":
        stems.append(word + word[-1])
    return [word, *(stem + ending for stem in stems for ending in endings)]


def static_vectors(m: LoadedModel, ids: torch.Tensor) -> torch.Tensor:
    """Input vectors (..., hidden) of token ids: without position, segment or LayerNorm.

    Families with a narrower embedding (ALBERT, small ELECTRA, DeBERTa) bring it to the hidden size by one
    matrix, which is applied.
    """
    base: Any = m.model.base_model
    vectors = base.get_input_embeddings()(ids)
    if vectors.shape[-1] == m.info.hidden:
        return vectors
    widen = (
        getattr(base, "embeddings_project", None)  # ELECTRA
        or getattr(getattr(base, "encoder", None), "embedding_hidden_mapping_in", None)  # ALBERT
        or getattr(base.embeddings, "embed_proj", None)  # DeBERTa
    )
    if widen is None:
        raise ModelError(f"The input vectors of {m.info.name} are not of its hidden size.")
    return widen(vectors)


def _pooled(hidden: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> np.ndarray:
    if pooling == "cls":
        return hidden[:, 0].float().cpu().numpy()
    weights = mask[..., None].to(hidden.dtype)
    return ((hidden * weights).sum(1) / weights.sum(1)).float().cpu().numpy()


def _inputs(m: LoadedModel, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    import torch

    ids, mask = padded(rows, m.pad_token_id)
    return {
        "input_ids": torch.from_numpy(ids).to(m.model.device),
        "attention_mask": torch.from_numpy(mask).to(m.model.device),
    }


def _pattern(word: str, inflected: bool) -> re.Pattern[str]:
    """Finds the word where it does not stand inside a longer one; Chinese has no such borders."""
    word = word.strip()
    if not word:
        raise TextError("There is no word yet: type the one whose uses are compared.")
    wanted = forms(word.lower()) if inflected else [word]
    either = "|".join(re.escape(form) for form in sorted(wanted, key=len, reverse=True))
    if re.search(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", word):
        return re.compile(f"(?:{either})")
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE)


def _occurrences(
    pattern: re.Pattern[str], reading: Reading, first_only: bool
) -> list[tuple[int, int, list[int]]]:
    """Start and end characters of each use, and where its tokens stand in `input_ids`."""
    uses = []
    for match in pattern.finditer(reading.text):
        places = [
            reading.index(token.position)
            for token in reading.tokens
            if token.start < match.end() and token.end > match.start()
        ]
        if places:
            uses.append((match.start(), match.end(), places))
    return uses[:1] if first_only else uses


def _word_vectors(
    m: LoadedModel,
    ids: Sequence[list[int]],
    uses: Sequence[Sequence[list[int]]],
    batch_tokens: int,
) -> np.ndarray:
    """(uses, layers + 1, hidden), the uses of each sentence in order."""
    import torch

    found: dict[int, list[np.ndarray]] = {}
    for rows in in_batches([len(row) for row in ids], batch_tokens):
        with torch.inference_mode():
            batch = _inputs(m, [ids[i] for i in rows])
            output = m.model.base_model(**batch, output_hidden_states=True)
            static = static_vectors(m, batch["input_ids"])
            layers = torch.stack([static, *output.hidden_states[1:]])  # (layers + 1, rows, ...)
            for place, i in enumerate(rows):
                means = [layers[:, place, tokens].mean(1).float().cpu() for tokens in uses[i]]
                found[int(i)] = [mean.numpy() for mean in means]
    return np.stack([vector for i in range(len(ids)) for vector in found[i]])
