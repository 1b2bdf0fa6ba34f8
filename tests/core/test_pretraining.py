import copy
import gzip
import io
import json
import math
import zipfile

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, pipeline

from core import masking, next_sentence, training
from core.chunks import padded
from core.errors import SettingError
from core.evaluation import target_logits
from core.exports import zip_folder
from core.models import load_model
from core.pretraining import (
    MaskedLM,
    MaskedLMWithNextSentence,
    PretrainConfig,
    chunk,
    evaluate,
    export,
    from_encoder,
    from_scratch,
    loss_by_rate,
    pretrain,
    steps_in,
)
from core.pretraining_cli import main, read_paragraphs
from tests.core.test_training import TEXTS, config


def test_chunks_hold_the_text_once_in_even_parts(tiny):
    text = " ".join(["cat"] * 100)
    chunks = chunk(tiny, [text, "the dog", "  "], max_tokens=32, words=True)
    assert chunks.lengths.tolist() == [25, 25, 25, 25, 2]
    ids, words = padded(tiny, chunks, np.array([0, 4]))
    assert ids.shape == (2, 27)
    assert ids[1].tolist() == [*tiny.tokenizer("the dog").input_ids, *[tiny.pad_token_id] * 23]
    assert words[1, :4].tolist() == [-1, 0, 1, -1]


def test_the_loss_is_that_of_transformers_on_the_selected_positions(tiny):
    chunks = chunk(tiny, TEXTS, 32)
    ids, _ = padded(tiny, chunks, np.arange(8))
    masked = masking.mask_tokens(ids, tiny.tokenizer, rate=0.4)
    with torch.inference_mode():
        logits, targets = target_logits(tiny, tiny.model, masked)
        ours = torch.nn.functional.cross_entropy(logits, targets)
        oracle = tiny.model(
            input_ids=torch.from_numpy(masked.inputs),
            attention_mask=torch.from_numpy((masked.inputs != tiny.pad_token_id).astype(int)),
            labels=torch.from_numpy(masked.labels),
        ).loss
    assert ours.item() == pytest.approx(oracle.item(), abs=1e-5)


def test_padding_changes_nothing(tiny):
    """5 words and 40 words in one batch, against the two alone with the same masks."""
    chunks = chunk(tiny, ["the cat sat on mat", " ".join(["dog ran"] * 20)], 64)

    def summed(masked):
        with torch.inference_mode():
            logits, targets = target_logits(tiny, tiny.model, masked)
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        return loss.item(), len(targets)

    ids, _ = padded(tiny, chunks, np.arange(2))
    together = masking.mask_tokens(ids, tiny.tokenizer, rate=0.4, seed=3)
    total, count = summed(together)
    alone = []
    for row, length in enumerate((7, 42)):
        part = [getattr(together, f)[row : row + 1, :length] for f in
                ("inputs", "labels", "selected", "action")]  # fmt: skip
        alone.append(summed(masking.Masked(*part)))
    assert count == sum(n for _, n in alone)
    assert total / count == pytest.approx(sum(x for x, _ in alone) / count, abs=1e-5)


def test_evaluation_weighs_every_target_the_same(tiny):
    chunks = chunk(tiny, TEXTS, 32)
    got = evaluate(tiny, chunks, seed=1)
    task = MaskedLM(tiny, chunks, chunks, [], PretrainConfig())
    assert got.targets == pytest.approx(0.15 * chunks.lengths.sum(), rel=0.3)
    assert 0 <= got.accuracy <= 1
    assert got == evaluate(tiny, chunks, seed=1)
    measured = task.measure(tiny.model)
    assert set(measured.p_true) == {"mask", "random", "keep"}
    assert all(0 < p < 1 for p in measured.p_true.values())


def test_errors_are_those_of_the_mean(tiny):
    got = evaluate(tiny, chunk(tiny, TEXTS, 32), seed=1)
    expected = math.sqrt(got.accuracy * (1 - got.accuracy) / got.targets)
    assert got.accuracy_error == pytest.approx(expected, abs=1e-9)
    assert 0 < got.loss_error < 1


def test_loss_by_rate_hides_more_and_more(tiny):
    found = dict(loss_by_rate(tiny, TEXTS, [0.1, 0.5]))
    assert found[0.5].targets == pytest.approx(5 * found[0.1].targets, rel=0.4)


def test_a_uniform_model_has_the_loss_of_its_vocabulary(tiny):
    import copy

    model = copy.deepcopy(tiny.model)
    with torch.no_grad():
        model.cls.predictions.decoder.weight.zero_()
        model.cls.predictions.bias.zero_()
    got = evaluate(tiny, chunk(tiny, TEXTS, 32), model=model)
    assert got.loss == pytest.approx(math.log(tiny.info.vocabulary), abs=1e-4)


def test_settings_are_checked():
    with pytest.raises(SettingError, match="mask probability"):
        PretrainConfig(rate=0)
    with pytest.raises(SettingError, match="8 to 8192"):
        PretrainConfig(max_tokens=4)


def test_empty_and_tiny_texts_are_refused(tiny):
    with pytest.raises(SettingError, match="empty"):
        next(pretrain(tiny, ["", " "], config()))
    with pytest.raises(SettingError, match="two paragraphs"):
        next(pretrain(tiny, ["the cat"], config()))


def test_whole_words_are_masked_whole_in_training(tiny):
    chunks = chunk(tiny, ["moss photosynthesises slowly. " * 3] * 8, 32, words=True)
    ids, words = padded(tiny, chunks, np.arange(8))
    masked = masking.mask_tokens(ids, tiny.tokenizer, unit="word", words=words, rate=0.4)
    for row in range(8):
        for word in range(words[row].max() + 1):
            assert len(set(masked.action[row][words[row] == word])) == 1
    events = list(pretrain(tiny, TEXTS, config(steps=2, unit=masking.Unit.WORD)))
    assert math.isfinite(events[-2].train_loss)


def test_each_pass_masks_anew(tiny):
    chunks = chunk(tiny, TEXTS, 32)
    task = MaskedLM(tiny, chunks, chunks, [], config())
    batch = np.arange(8)
    losses = {round(task.loss(tiny.model, batch, step).item(), 6) for step in (1, 2, 3)}
    assert len(losses) == 3
    assert [b.tolist() for b in task.batches(1)] != [b.tolist() for b in task.batches(2)]


def test_a_bert_from_scratch_learns_and_reads_with_the_same_tokenizer(tiny):
    small = from_scratch(tiny, layers=2, hidden=32, seed=1)
    assert small.info.layers == 2
    assert small.info.heads == 1
    assert small.info.vocabulary == tiny.info.vocabulary
    again = from_scratch(tiny, layers=2, hidden=32, seed=1)
    assert again.weights_hash == small.weights_hash
    assert from_scratch(tiny, layers=2, hidden=32, seed=2).weights_hash != small.weights_hash
    # untrained: near the loss of a uniform guess
    untrained = evaluate(small, chunk(small, TEXTS, 32)).loss
    assert untrained == pytest.approx(math.log(tiny.info.vocabulary), abs=0.3)
    with pytest.raises(SettingError, match="1 to 12 layers"):
        from_scratch(tiny, layers=2, hidden=33)


def test_the_steps_of_a_pass_are_its_batches(tiny):
    settings = config(batch_tokens=64)
    chunks = chunk(tiny, TEXTS, 32)
    task = MaskedLM(tiny, chunks, chunks, [], settings)
    assert steps_in(chunks, settings) == len(list(task.batches(1)))


def test_epochs_are_measured_one_by_one(tiny):
    events = list(pretrain(tiny, TEXTS, PretrainConfig(epochs=3, batch_tokens=256)))
    measured = [e for e in events if isinstance(e, training.Measured)]
    each = measured[1].step
    assert [e.step for e in measured] == [0, each, 2 * each, 3 * each]
    with pytest.raises(SettingError, match="at least 1 epoch"):
        PretrainConfig(epochs=0)


def test_open_ends_drop_the_final_full_stop_only(tiny):
    chunks = chunk(tiny, ["the cat sat.", "a dog ran", "."], 32)
    task = MaskedLM(tiny, chunks, chunks, [], config(open_ends=1.0))
    opened = task._opened(np.arange(3), np.random.default_rng(0))
    assert opened.lengths.tolist() == [3, 3, 1]
    assert chunks.lengths.tolist() == [4, 3, 1]
    task = MaskedLM(tiny, chunks, chunks, [], config())
    assert task._opened(np.arange(3), np.random.default_rng(0)) is chunks


def test_static_masks_are_the_same_in_every_pass_and_dynamic_ones_are_not(tiny):
    chunks = chunk(tiny, TEXTS, 32)
    for dynamic in (False, True):
        task = MaskedLM(tiny, chunks, chunks, [], config(dynamic=dynamic))
        seen = []
        for step, batch in ((1, np.array([3, 5])), (9, np.array([5, 7, 3]))):
            ids, words = padded(tiny, chunks, batch)
            masked = task._masked(ids, words, batch, np.random.default_rng((0, step)))
            place = int(np.flatnonzero(batch == 5)[0])
            seen.append(masked.inputs[place][: chunks.lengths[5] + 2].tolist())
        assert (seen[0] == seen[1]) is not dynamic
    steps = [
        [
            e.loss
            for e in pretrain(tiny, TEXTS, config(dynamic=False))
            if isinstance(e, training.StepDone)
        ]
        for _ in range(2)
    ]
    assert steps[0] == steps[1]


TALES = [
    f"{first} sat on the {mat}. {second} ran in the {rain}. the lamp was warm."
    for first in ("the cat", "a dog")
    for second in ("the river", "it")
    for mat in ("mat", "bank")
    for rain in ("rain", "light")
]


def test_pairs_are_the_tokenizers_own(tiny):
    """Half of the chunks keep their own next sentence; [CLS], [SEP] and segments as the tokenizer sets."""
    chunks = chunk(tiny, TALES, 64, words=True)
    pairing = next_sentence.Pairing(tiny, chunks)
    rng, labels = np.random.default_rng(0), []
    for _ in range(40):
        pairs = pairing.draw(np.arange(len(chunks)), rng)
        labels += pairs.labels.tolist()
    assert np.mean(labels) == pytest.approx(0.5, abs=3 * 0.5 / len(labels) ** 0.5)
    for row, text in enumerate(TALES):
        ids = pairs.ids[row][pairs.ids[row] != tiny.pad_token_id].tolist()
        ends = [i for i, token in enumerate(ids) if token == ids[-1]]
        a, b = (tiny.tokenizer.decode(x) for x in (ids[1 : ends[0]], ids[ends[0] + 1 : -1]))
        expected = tiny.tokenizer(a, b, return_token_type_ids=True)
        assert ids == expected.input_ids
        assert pairs.segments[row][: len(ids)].tolist() == expected.token_type_ids
        whole = f"{a} {b}".replace(" .", ".")
        assert (whole == text) or pairs.labels[row] == next_sentence.NOT_NEXT
        words = pairs.words[row]
        assert not set(words[1 : ends[0]]) & set(words[ends[0] + 1 : len(ids) - 1])


def test_both_objectives_are_summed_and_learned(tiny):
    """One fixed pairing is overfitted; what comes out is a plain masked LM."""
    settings = config(steps=60, next_sentence=True, batch_tokens=512)
    events = list(pretrain(tiny, TALES, settings, held_out=TALES[:6], probes=[]))
    measured = [e.result.next_sentence for e in events if isinstance(e, training.Measured)]
    assert measured[0].loss == pytest.approx(math.log(2), abs=0.05)  # untrained
    assert measured[0].pairs == 6
    assert not hasattr(events[-1].model, "next_sentence")
    assert type(events[-1].model) is type(tiny.model)
    task = MaskedLMWithNextSentence(
        tiny, chunk(tiny, TALES, 64), chunk(tiny, TALES, 64), [], config(next_sentence=True)
    )
    model = copy.deepcopy(tiny.model)
    next_sentence.add_head(model, seed=0)
    batch = np.arange(8)
    both = task.loss(model, batch, 1)
    rng = np.random.default_rng((0, 1))
    pairs = task.pairing.draw(batch, rng)
    masked = task._masked(pairs.ids, pairs.words, batch, rng)
    output = model(
        input_ids=torch.from_numpy(masked.inputs),
        attention_mask=torch.from_numpy((pairs.ids != tiny.pad_token_id).astype(int)),
        token_type_ids=torch.from_numpy(pairs.segments),
        labels=torch.from_numpy(masked.labels),
        output_hidden_states=True,
    )
    logits = model.next_sentence(output.hidden_states[-1][:, 0])
    second = torch.nn.functional.cross_entropy(logits, torch.from_numpy(pairs.labels))
    assert both.item() == pytest.approx((output.loss + second).item(), abs=1e-5)


def test_a_text_of_single_sentences_has_no_pairs(tiny):
    with pytest.raises(SettingError, match="two paragraphs of two sentences"):
        pretrain(tiny, TEXTS, config(next_sentence=True))


def test_the_zip_loads_in_transformers(tiny, tmp_path):
    export(tiny, tiny.model, tmp_path / "mine")
    with zipfile.ZipFile(io.BytesIO(zip_folder(tmp_path / "mine"))) as archive:
        archive.extractall(tmp_path)
    fill = pipeline("fill-mask", model=str(tmp_path / "model"))
    oracle = pipeline("fill-mask", model=tiny.model, tokenizer=tiny.tokenizer)
    ours, theirs = fill("the [MASK] sat")[0], oracle("the [MASK] sat")[0]
    assert ours["token"] == theirs["token"]
    assert ours["score"] == pytest.approx(theirs["score"], abs=1e-2)  # float16 weights


def test_an_encoder_gets_a_head_that_predicts_frequencies(headless_folder):
    m = from_encoder(headless_folder, ["cat cat cat dog"] * 10)
    head = m.model.cls.predictions
    assert torch.equal(head.transform.dense.weight, torch.eye(16))
    ids = m.tokenizer("cat dog", add_special_tokens=False).input_ids
    difference = head.bias[ids[0]] - head.bias[ids[1]]
    assert difference.item() == pytest.approx(math.log(3.1 / 1.1), abs=1e-5)


def test_the_command_line_trains_resumes_and_exports(headless_folder, tmp_path, caplog):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    with gzip.open(corpus / "one.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(TEXTS * 2))
    (corpus / "two.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    output = tmp_path / "out"
    arguments = ["--corpus", str(corpus), "--start", str(headless_folder), "--output", str(output)]
    arguments += ["--max-tokens", "32", "--batch-tokens", "256", "--measure-every", "2"]
    main([*arguments, "--steps", "2", "--repeat", "two=2"])
    main([*arguments, "--steps", "4", "--repeat", "two=2"])
    recorded = [json.loads(x) for x in (output / "recorded_run.jsonl").read_text().splitlines()]
    assert [r["step"] for r in recorded] == [0, 2, 4]
    assert len(recorded[0]["probes"]) == 16
    report = json.loads((output / "evaluation.json").read_text())
    assert set(report) == {"one", "two", "all"}
    fill = pipeline("fill-mask", model=str(output / "model"))
    assert len(fill("the [MASK] sat")) == 5
    tokenizer = AutoTokenizer.from_pretrained(output / "model")
    assert len(tokenizer("cat " * 60).input_ids) == 62
    assert load_model(output / "model").info.layers == 2
    with pytest.raises(SystemExit):
        main(["--corpus", str(tmp_path / "nothing"), "--output", str(output)])
    assert read_paragraphs(corpus / "two.txt") == TEXTS
