"""Vectors and maps against what one would call instead.

Embedding sentences of mixed length with the packaged Sentence-BERT model against
SentenceTransformer.encode; word vectors at all layers against one call of transformers a sentence;
UMAP through `project` against umap-learn itself. Each row first checks that both sides gave the same.
"""

import statistics
import sys
import time
import warnings

import numpy as np
import torch

from core.datasets import python_reference, reviews, senses, sentences
from core.embeddings import embed_word
from core.models import load_model
from core.projection import project, warm_up
from core.sentence_encoder import load_sentence_encoder


def ratio(ours, theirs, repeats=3):
    """Their time over ours, median and spread, in turn in one run."""
    found = []
    for _ in range(repeats):
        times = []
        for side in (ours, theirs):
            start = time.perf_counter()
            side()
            times.append(time.perf_counter() - start)
        found.append(times[1] / times[0])
    return f"{statistics.median(found):.2f}x ({min(found):.2f} to {max(found):.2f})"


def sentence_vectors(count):
    encoder = load_sentence_encoder()
    pool = [*reviews()["text"], *sentences(), *(text[:400] for text in python_reference())]
    texts = [pool[i % len(pool)] for i in range(count)]

    def theirs():
        return encoder.whole.encode(texts, normalize_embeddings=True, show_progress_bar=False)

    difference = np.abs(encoder.embed(texts[:500]) - theirs()[:500]).max()
    assert difference < 1e-4, difference
    print(f"{count} sentences: {ratio(lambda: encoder.embed(texts), theirs)} SentenceTransformer")


def word_vectors(count):
    m, table = load_model(), senses()
    table = table[table["word"] == "bank"]
    texts = [table["sentence"].iloc[i % len(table)] for i in range(count)]

    def theirs():
        out = []
        for text in texts:
            batch = m.tokenizer(text, return_tensors="pt")
            place = batch["input_ids"][0].tolist().index(m.backend.token_to_id("bank"))
            with torch.inference_mode():
                states = m.model.base_model(**batch, output_hidden_states=True).hidden_states
            out.append(torch.stack([layer[0, place] for layer in states]).numpy())
        return np.stack(out)

    ours = embed_word(m, "bank", texts[:50], first_only=True).vectors[:, 1:]
    assert np.abs(ours - theirs()[:50, 1:]).max() < 1e-4
    told = ratio(lambda: embed_word(m, "bank", texts, first_only=True), theirs)
    print(f"word vectors at all layers, {count} sentences: {told} one call a sentence")


def umap(rows):
    from umap import UMAP

    vectors = np.random.default_rng(0).normal(size=(rows, 384)).astype(np.float32)
    warm_up()

    def theirs():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return UMAP(metric="cosine", random_state=0, n_jobs=1).fit_transform(vectors)

    assert np.abs(project(vectors) - theirs()).max() < 1e-6
    print(f"UMAP of {rows} x 384: {ratio(lambda: project(vectors), theirs, 1)} umap-learn")


def main():
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0  # of the full size
    sentence_vectors(int(10_000 * share))
    word_vectors(int(1_000 * share))
    umap(int(10_000 * share))


if __name__ == "__main__":
    main()
