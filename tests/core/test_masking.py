import numpy as np
import pytest
import torch
from scipy import stats
from transformers import DataCollatorForLanguageModeling

from core.errors import SettingError
from core.masking import (
    IGNORED,
    Action,
    Split,
    binomial,
    mask_tokens,
    repeat_draw,
    span_lengths,
    vocabulary_of,
)
from tests.conftest import build_tokenizer

TOKENIZER = build_tokenizer()
SPECIAL = list(range(5))
UNUSED = [5, 6]


def ordinary_ids(count, seed=0):
    return np.random.default_rng(seed).integers(7, len(TOKENIZER), count)


def batch(rows=400, length=52):
    """Rows with [CLS], [SEP], padding and unknown tokens among ordinary ones."""
    ids = ordinary_ids(rows * length).reshape(rows, length)
    ids[:, 0], ids[:, -3], ids[:, -2:] = 2, 3, 0
    ids[:, 7] = 1
    return ids


def collated(ids, seed=0):
    torch.manual_seed(seed)
    collator = DataCollatorForLanguageModeling(TOKENIZER, mlm_probability=0.15)
    out = collator([{"input_ids": row} for row in torch.from_numpy(ids)])
    return out["input_ids"].numpy(), out["labels"].numpy()


def shares(ids, inputs, labels):
    """Selection rate among ordinary tokens, and the shares of mask, changed, unchanged."""
    selected = labels != IGNORED
    masked = selected & (inputs == TOKENIZER.mask_token_id)
    same = selected & (inputs == ids)
    n = selected.sum()
    ordinary = (~np.isin(ids, SPECIAL)).sum()
    return n / ordinary, masked.sum() / n, (n - masked.sum() - same.sum()) / n, same.sum() / n


def test_equal_in_distribution_to_the_collator_of_transformers():
    ids = batch()
    ours = mask_tokens(ids, TOKENIZER, seed=1)
    theirs = collated(ids)
    a, b = shares(ids, ours.inputs, ours.labels), shares(ids, *theirs)
    assert a == pytest.approx(b, abs=0.025)
    assert a[0] == pytest.approx(0.15, abs=0.01)
    counts_ours = np.bincount((ours.labels != IGNORED).sum(1), minlength=25)
    counts_theirs = np.bincount((theirs[1] != IGNORED).sum(1), minlength=25)
    table = np.array([counts_ours, counts_theirs])[:, 3:12]
    assert stats.chi2_contingency(table).pvalue > 0.001


def test_special_tokens_and_padding_are_never_selected():
    ids = batch()
    out = mask_tokens(ids, TOKENIZER, rate=1.0)
    assert not out.selected[np.isin(ids, SPECIAL)].any()
    assert out.selected[~np.isin(ids, SPECIAL)].all()
    assert (out.inputs[~out.selected] == ids[~out.selected]).all()


def test_a_random_word_is_never_special_or_unused():
    ids = np.tile(ordinary_ids(2000), (5, 1))
    out = mask_tokens(ids, TOKENIZER, rate=1.0, split=Split(0, 1, 0))
    assert not np.isin(out.inputs, [*SPECIAL, *UNUSED]).any()
    drawn = set(out.inputs.ravel())
    assert drawn == set(range(7, len(TOKENIZER)))


@pytest.mark.parametrize("split", [(0.8, 0.1, 0.1), (0, 1, 0), (0, 0, 1), (0.33, 0.33, 0.34)])
def test_the_split_is_the_measured_one(split):
    out = mask_tokens(ordinary_ids(20_000), TOKENIZER, rate=1.0, split=split)
    got = [(out.action == action).mean() for action in (Action.MASK, Action.RANDOM, Action.KEEP)]
    assert got == pytest.approx(split, abs=0.01)
    assert (out.inputs[out.action == Action.MASK] == TOKENIZER.mask_token_id).all()
    kept = out.action == Action.KEEP
    assert (out.inputs[kept] == out.labels[kept]).all()


def test_rate_and_split_within_three_standard_errors_over_a_million_tokens():
    ids = ordinary_ids(1_000_000).reshape(1000, 1000)
    out = mask_tokens(ids, TOKENIZER, seed=11)
    n = out.selected.sum()
    assert abs(n / 1e6 - 0.15) < 3 * (0.15 * 0.85 / 1e6) ** 0.5
    for action, share in ((Action.MASK, 0.8), (Action.RANDOM, 0.1), (Action.KEEP, 0.1)):
        measured = (out.action == action).sum() / n
        assert abs(measured - share) < 3 * (share * (1 - share) / n) ** 0.5


def test_a_split_above_100_percent_is_refused():
    with pytest.raises(SettingError, match="= 120%"):
        Split(0.8, 0.2, 0.2)
    with pytest.raises(SettingError, match="between 0 and 1"):
        mask_tokens([7, 8], TOKENIZER, rate=1.5)


def test_same_seed_same_mask_whatever_the_global_generators_did():
    ids = batch()
    first = mask_tokens(ids, TOKENIZER, seed=7)
    np.random.seed(1)
    torch.manual_seed(5)
    np.random.random(10)
    again = mask_tokens(ids, TOKENIZER, seed=7)
    other = mask_tokens(ids, TOKENIZER, seed=8)
    assert (first.inputs == again.inputs).all()
    assert (first.selected != other.selected).any()


def test_labels_hold_the_original_where_selected_only():
    ids = batch()
    out = mask_tokens(ids, TOKENIZER)
    assert (out.labels[out.selected] == ids[out.selected]).all()
    assert (out.labels[~out.selected] == IGNORED).all()
    assert ((out.action != Action.NONE) == out.selected).all()


WORDS_100 = np.repeat(np.arange(60), [1, 1, 3] * 20)[:100]


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_the_budget_is_kept(unit):
    ids = ordinary_ids(100)
    counts = [
        mask_tokens(ids, TOKENIZER, unit=unit, words=WORDS_100, exact=True, seed=s).selected.sum()
        for s in range(300)
    ]
    assert max(counts) <= 15
    assert np.mean(counts) == pytest.approx(15, abs=1)


@pytest.mark.parametrize("unit", ["token", "word", "span"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_tiny_texts_get_one_target(unit, length):
    ids = np.array([2, *ordinary_ids(length), 3])
    words = np.array([-1, *range(length), -1])
    for seed in range(20):
        out = mask_tokens(ids, TOKENIZER, unit=unit, words=words, exact=True, seed=seed)
        assert out.selected.sum() == 1


@pytest.mark.parametrize("unit", ["token", "word", "span"])
def test_rate_one_masks_all_and_rate_zero_none(unit):
    ids = ordinary_ids(100)
    for rate, expected in ((1.0, 100), (0.0, 0)):
        out = mask_tokens(ids, TOKENIZER, rate=rate, unit=unit, words=WORDS_100, exact=True)
        assert out.selected.sum() == expected


def test_words_are_taken_whole_with_one_action():
    ids = ordinary_ids(100)
    for seed in range(50):
        out = mask_tokens(ids, TOKENIZER, unit="word", words=WORDS_100, seed=seed)
        for word in np.unique(WORDS_100):
            assert len(set(out.action[word == WORDS_100])) == 1


def test_a_span_has_one_action_and_starts_at_a_word():
    ids = ordinary_ids(40)
    words = np.arange(40)
    mixed = 0
    for seed in range(2000):
        out = mask_tokens(ids, TOKENIZER, rate=0.15, unit="span", words=words, seed=seed)
        where = np.flatnonzero(out.selected)
        assert len(where) == 6
        runs = np.split(where, np.flatnonzero(np.diff(where) > 1) + 1)
        mixed += sum(len(set(out.action[run])) > 1 for run in runs)
    # two spans that happen to touch may differ; a draw per token would mix about half of the runs
    assert mixed < 0.1 * 2000


def test_span_lengths_follow_spanbert():
    lengths = span_lengths(np.random.default_rng(0), 20_000)
    k = np.arange(1, 11)
    p = 0.2 * 0.8 ** (k - 1)
    assert (lengths.min(), lengths.max()) == (1, 10)
    assert lengths.mean() == pytest.approx((k * p).sum() / p.sum(), abs=0.05)
    assert lengths.mean() == pytest.approx(3.8, abs=0.05)


def test_ten_thousand_draws_follow_the_binomial_law():
    ids = np.array([2, *ordinary_ids(32), 3])
    counts = repeat_draw(ids, TOKENIZER, draws=10_000, seed=4)
    expected = 10_000 * binomial(32, 0.15)
    seen = np.bincount(counts[:, 0], minlength=33)
    usual = expected > 20
    statistic = ((seen - expected)[usual] ** 2 / expected[usual]).sum()
    assert stats.chi2.sf(statistic, usual.sum() - 1) > 0.001
    assert (counts[:, 0] == counts[:, 1:].sum(1)).all()
    assert counts[:, 1].mean() == pytest.approx(32 * 0.15 * 0.8, abs=0.06)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_repeated_draws_of_words_keep_the_budget(unit):
    counts = repeat_draw(ordinary_ids(100), TOKENIZER, unit=unit, words=WORDS_100, draws=2000)
    assert counts[:, 0].max() <= 15
    assert counts[:, 0].mean() == pytest.approx(15, abs=1)
    assert counts[:, 1].mean() / counts[:, 0].mean() == pytest.approx(0.8, abs=0.02)
    nothing = repeat_draw(ordinary_ids(9), TOKENIZER, unit=unit, words=np.arange(9), rate=0.0)
    assert nothing.sum() == 0


@pytest.mark.parametrize(("n", "rate"), [(32, 0.15), (500, 0.5), (1, 0.3), (7, 0.0), (7, 1.0)])
def test_binomial_against_scipy(n, rate):
    expected = stats.binom.pmf(np.arange(n + 1), n, rate)
    np.testing.assert_allclose(binomial(n, rate), expected, atol=1e-12)


def test_words_need_their_numbers():
    with pytest.raises(SettingError, match="word number"):
        mask_tokens([7, 8], TOKENIZER, unit="word")


def test_the_vocabulary_knows_special_and_unused_tokens():
    vocabulary = vocabulary_of(TOKENIZER)
    assert np.flatnonzero(vocabulary.special).tolist() == SPECIAL
    assert vocabulary.ordinary.tolist() == list(range(7, len(TOKENIZER)))
