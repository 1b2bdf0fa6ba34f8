import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertForMaskedLM, PreTrainedTokenizerFast

from core.errors import TextError
from core.models import wrap
from core.text import Kind, read, with_mask
from tests.conftest import tiny_config


def groups(m, text):
    reading = read(m, text)
    return [[token.piece for token in word] for word in reading.words]


def test_positions_count_text_tokens_and_offsets_cover_what_was_typed(tiny):
    reading = read(tiny, "The cat sat on the warm mat")
    assert [t.position for t in reading.tokens] == list(range(7))
    assert [t.text for t in reading.tokens] == ["The", "cat", "sat", "on", "the", "warm", "mat"]
    assert reading.input_ids == tiny.tokenizer("The cat sat on the warm mat").input_ids
    assert [reading.index(p) for p in range(7)] == list(range(1, 8))


@pytest.mark.parametrize("text", ["", "   ", "\n\t ", "\u200b\u0007", "\x00"])
def test_nothing_to_read_is_said(tiny, text):
    with pytest.raises(TextError):
        read(tiny, text)


@pytest.mark.parametrize("mask", ["[mask]", "[Mask]", "[ MASK ]", "<mask>", "< Mask >"])
def test_a_mask_in_another_spelling_is_a_mask(tiny, mask):
    reading = read(tiny, f"rain on the {mask} mat.")
    assert [t.piece for t in reading.tokens] == ["rain", "on", "the", "[MASK]", "mat", "."]
    assert reading.masks == [3]
    assert any(mask in note and "[MASK]" in note for note in reading.notes)


def test_the_right_spelling_needs_no_note(tiny):
    assert read(tiny, "the [MASK] sat").notes == ()


def test_control_tokens_in_the_text_keep_their_positions_and_are_not_scored(tiny):
    reading = read(tiny, "the [CLS] cat [SEP] sat")
    assert [t.kind for t in reading.tokens] == [
        Kind.WORD, Kind.CONTROL, Kind.WORD, Kind.CONTROL, Kind.WORD,
    ]  # fmt: skip
    assert reading.scorable == [0, 2, 4]
    assert any("[CLS], [SEP]" in note for note in reading.notes)


def test_punctuation_stands_alone(tiny):
    assert groups(tiny, "The cat sat.") == [["the"], ["cat"], ["sat"], ["."]]
    assert groups(tiny, "well-known, isn't it?") == [
        ["well"], ["-"], ["known"], [","], ["isn"], ["'"], ["t"], ["it"], ["?"],
    ]  # fmt: skip


def test_chinese_words_are_single_characters(embedded):
    reading = read(embedded, "我们在河边散步")
    assert [reading.text[w[0].start : w[-1].end] for w in reading.words] == list("我们在河边散步")


def byte_level():
    """A tokenizer as RoBERTa's and ModernBERT's: bytes, the space counted into the next word."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", *alphabet]
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    return wrapped(backend, pieces)


def metaspace():
    """A tokenizer as ALBERT's: split at spaces only, so that a full stop joins its word."""
    letters = [chr(c) for c in range(33, 127)] + list("▁我们在河边散步")
    pieces = ["<s>", "</s>", "<pad>", "<unk>", "<mask>", *letters]
    backend = Tokenizer(models.Unigram([(p, -1.0) for p in pieces], unk_id=3))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return wrapped(backend, pieces)


def wrapped(backend, pieces):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=60, bos_token="<s>", eos_token="</s>",
        cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>",
        mask_token="<mask>",
    )  # fmt: skip
    backend = tokenizer.backend_tokenizer
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return wrap(BertForMaskedLM(tiny_config(len(pieces))), tokenizer, name="other family")


@pytest.mark.parametrize("make", [byte_level, metaspace])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat.", ["The", "cat", "sat", "."]),
        ("well-known, isn't it?", ["well", "-", "known", ",", "isn", "'", "t", "it", "?"]),
        ("我们在河边散步", list("我们在河边散步")),
    ],
)
def test_words_are_the_same_in_every_family(make, text, words):
    reading = read(make(), text)
    assert [reading.text[w[0].start : w[-1].end] for w in reading.words] == words


@pytest.mark.parametrize("make", [byte_level, metaspace])
def test_a_mask_of_another_family_is_translated(make):
    m = make()
    reading = read(m, "Tea is at [MASK].")
    assert len(reading.masks) == 1
    assert reading.text == "Tea is at <mask>."
    assert any("[MASK]" in note and "<mask>" in note for note in reading.notes)
    assert read(m, "Tea is at <mask>.").notes == ()


def test_pieces_of_a_word_stay_together(tiny):
    assert groups(tiny, "moss photosynthesises in") == [
        ["moss"], ["photo", "##synth", "##esis", "##es"], ["in"],
    ]  # fmt: skip


def test_with_mask_leaves_the_neighbours_where_they_were(tiny):
    reading = read(tiny, "moss photosynthesises in weak light")
    hidden = with_mask(reading, 2, tiny.mask_token)
    assert hidden == "moss [MASK] [MASK] [MASK] [MASK] in weak light"
    assert [t.piece for t in read(tiny, hidden).tokens][5:] == ["in", "weak", "light"]


def test_unknown_symbols_are_counted_with_their_text(embedded):
    reading = read(embedded, "5 € + 2 £ ≈ 8 $ <ok> ~ ^ 👩‍🚀🏳️‍🌈🙂")
    unknown = [t for t in reading.tokens if t.kind is Kind.UNKNOWN]
    assert unknown
    note = next(n for n in reading.notes if "not in the vocabulary" in n)
    assert note.startswith(f"{len(unknown)} of {len(reading.tokens)} tokens")
    assert "👩" in note
    covered = set()
    for token in reading.tokens:
        covered |= set(range(token.start, token.end))
    visible = {i for i, c in enumerate(reading.text) if not c.isspace()}
    dropped = visible - covered
    said = next((n for n in reading.notes if "dropped" in n), "0 ")
    assert said.startswith(f"{len(dropped)} ")


@pytest.mark.parametrize("symbol", ["👍🏽", "🇫🇷", "🙂"])
def test_an_emoji_is_never_silently_lost(embedded, symbol):
    reading = read(embedded, f"fine {symbol}")
    assert any(t.kind is Kind.UNKNOWN for t in reading.tokens)


def test_accents_are_shown_to_be_stripped(embedded):
    reading = read(embedded, "Zoë's café, naïve façade")
    assert reading.normalised == "zoe's cafe, naive facade"
    word = next(w for w in reading.words if reading.text[w[0].start : w[-1].end] == "café")
    assert reading.text[word[0].start : word[-1].end] == "café"


def test_composed_and_decomposed_letters_give_the_same_tokens(embedded):
    composed = read(embedded, "été")
    decomposed = read(embedded, "e\u0301te\u0301")
    assert composed.input_ids == decomposed.input_ids


def test_hindi_vowel_signs_do_not_crash(embedded):
    assert read(embedded, "हिन्दी में").tokens


def test_right_to_left_text_keeps_reading_order(embedded):
    reading = read(embedded, "החתול ישן על הגג 12 abc")
    starts = [t.start for t in reading.tokens]
    assert starts == sorted(starts)
    assert reading.tokens[-1].text == "abc"


def test_control_characters_are_said_to_be_dropped(tiny):
    reading = read(tiny, "the\u0007 cat\u0000 sat")
    assert [t.piece for t in reading.tokens] == ["the", "cat", "sat"]
    assert any("U+0007" in note and "2 characters" in note for note in reading.notes)


def test_a_word_of_400_letters_is_one_unknown_token(embedded):
    reading = read(embedded, "see " + "a" * 400)
    assert [t.kind for t in reading.tokens] == [Kind.WORD, Kind.UNKNOWN]


def test_half_a_surrogate_pair_does_not_crash(embedded):
    reading = read(embedded, "cat \ud83d sat")
    assert any("surrogate" in note for note in reading.notes)


def test_a_long_text_is_cut_and_the_place_is_said(embedded):
    reading = read(embedded, "word " * 5000)
    assert len(reading.tokens) == 510
    assert reading.total == 5000
    assert len(reading.input_ids) == embedded.info.max_tokens
    note = reading.notes[0]
    assert "tokens 0 to 509 of 5000" in note
    assert "character 2549" in note  # 510 words of four letters, 509 spaces


@pytest.mark.parametrize("at", [509, 510, 511, 512, 604])
def test_a_mask_beyond_the_limit_is_read(embedded, at):
    words = ["word"] * 605
    words[at] = "[MASK]"
    reading = read(embedded, " ".join(words))
    assert reading.masks == [at]
    assert len(reading.input_ids) <= 512
    assert reading.input_ids[reading.index(at)] == embedded.mask_token_id


def test_a_mask_outside_the_window_is_counted(embedded):
    words = ["word"] * 1500
    words[0] = words[1400] = "[MASK]"
    reading = read(embedded, " ".join(words))
    assert reading.masks == [0]
    assert "1 of its masks lie outside" in reading.notes[0]


def test_around_moves_the_window(embedded):
    reading = read(embedded, "word " * 2000, around=1500)
    assert reading.token(1500).text == "word"
    with pytest.raises(TextError, match="outside the text"):
        reading.token(3)


def test_hostile_text_is_data(tiny):
    text = "cost $5 and $6 *not* bold _x_ :red[y] `##ing` 1. # a"
    reading = read(tiny, text)
    assert "".join(t.text for t in reading.tokens) == text.replace(" ", "")
