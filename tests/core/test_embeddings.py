import numpy as np
import pytest
import torch

from core.embeddings import embed_sentences, embed_word, embedding, forms
from core.errors import SettingError, TextError

TEXTS = ["the cat sat", "a dog ran in rain", "", "photosynthesis", "the mat " * 40]


def alone(m, text, layer=-1):
    """What transformers gives for a text on its own: hidden states (tokens, hidden)."""
    batch = m.tokenizer(text, return_tensors="pt", truncation=True, max_length=m.info.max_tokens)
    with torch.inference_mode():
        output = m.model.base_model(**batch, output_hidden_states=True)
    return output.hidden_states[layer][0].numpy()


@pytest.mark.parametrize("layer", [-1, 0, 1])
@pytest.mark.parametrize("batch_tokens", [8, 64, 4096])
def test_padding_and_batches_never_change_a_vector(tiny, layer, batch_tokens):
    found = embed_sentences(tiny, TEXTS, layer=layer, batch_tokens=batch_tokens)
    first = embed_sentences(tiny, TEXTS, layer=layer, pooling="cls", batch_tokens=batch_tokens)
    for text, vector, cls in zip(TEXTS, found, first, strict=True):
        expected = alone(tiny, text, layer)
        assert vector == pytest.approx(expected.mean(0), abs=1e-5)
        assert cls == pytest.approx(expected[0], abs=1e-5)


def test_batches_bring_every_row_once(tiny):
    rows = np.concatenate([rows for rows, _ in embedding(tiny, TEXTS, batch_tokens=16)])
    assert sorted(rows) == list(range(len(TEXTS)))


def test_no_texts_and_no_such_layer(tiny):
    assert embed_sentences(tiny, []).shape == (0, tiny.info.hidden)
    with pytest.raises(SettingError, match="no layer 9"):
        embed_sentences(tiny, ["the cat"], layer=9)


def test_a_word_at_every_layer(tiny):
    sentences = ["the cat sat on the mat", "a cat ran", "the dog ran"]
    uses = embed_word(tiny, "cat", sentences)
    assert uses.vectors.shape == (2, tiny.info.layers + 1, tiny.info.hidden)
    assert uses.uses["sentence"].tolist() == [0, 1]
    assert uses.absent == (2,)
    for use, text in enumerate(sentences[:2]):
        for layer in range(1, tiny.info.layers + 1):
            expected = alone(tiny, text, layer)[2]  # [CLS], then the word before it
            assert uses.vectors[use, layer] == pytest.approx(expected, abs=1e-5)


def test_layer_0_is_the_row_of_the_embedding_matrix(tiny):
    uses = embed_word(tiny, "cat", ["the cat sat", "cat ran in rain"])
    matrix = tiny.model.get_input_embeddings().weight.detach().numpy()
    row = matrix[tiny.backend.token_to_id("cat")]
    assert uses.vectors[:, 0] == pytest.approx(np.stack([row, row]), abs=1e-7)


def test_the_pieces_of_a_word_are_averaged(tiny):
    uses = embed_word(tiny, "photosynthesis", ["moss photosynthesis slowly, photosynthesis."])
    assert uses.uses["pieces"].tolist() == [3, 3]
    hidden = alone(tiny, "moss photosynthesis slowly, photosynthesis.")
    assert uses.vectors[0, -1] == pytest.approx(hidden[2:5].mean(0), abs=1e-5)
    assert uses.vectors[1, -1] == pytest.approx(hidden[7:10].mean(0), abs=1e-5)


@pytest.mark.parametrize(
    ("text", "forms_found"),
    [
        ("bank", ["bank"]),
        ("Bank, the bank: bank.", ["Bank", "bank", "bank"]),
        ("riverbank banks banking", []),
        ("the bank-bank", ["bank", "bank"]),
    ],
)
def test_every_occurrence_once_and_no_longer_word(tiny, text, forms_found):
    if not forms_found:
        with pytest.raises(TextError, match="No sentence has the word"):
            embed_word(tiny, "bank", [text])
        return
    uses = embed_word(tiny, "bank", [text]).uses
    assert uses["form"].tolist() == forms_found
    assert [text[start:end] for start, end in zip(uses["start"], uses["end"], strict=True)] == (
        forms_found
    )


def test_inflected_forms_by_choice(tiny):
    text = "banks banked banking bank bankrupt"
    assert embed_word(tiny, "bank", [text], inflected=True).uses["form"].tolist() == [
        "banks",
        "banked",
        "banking",
        "bank",
    ]
    assert {"batting", "bats"} <= set(forms("bat"))
    assert {"tries", "tried"} <= set(forms("try"))


def test_the_first_use_only_by_choice(tiny):
    uses = embed_word(tiny, "cat", ["cat and cat", "the cat"], first_only=True)
    assert uses.uses["sentence"].tolist() == [0, 1]


def test_batches_keep_the_uses_in_order(tiny):
    sentences = ["the cat", "a dog ran in rain with a cat", "cat", "the warm cat sat"]
    together = embed_word(tiny, "cat", sentences, batch_tokens=8).vectors
    for i, sentence in enumerate(sentences):
        assert together[i] == pytest.approx(
            embed_word(tiny, "cat", [sentence]).vectors[0], abs=1e-5
        )


def test_a_use_beyond_the_cut_is_absent(tiny):
    long = "mat " * (tiny.info.max_tokens + 5) + "cat"
    assert embed_word(tiny, "cat", [long, "the cat"]).absent == (0,)


def test_blank_words_and_sentences(tiny):
    with pytest.raises(TextError, match="no word yet"):
        embed_word(tiny, "  ", ["the cat"])
    assert embed_word(tiny, "cat", ["", "the cat"]).absent == (0,)
