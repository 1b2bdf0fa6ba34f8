import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics
from sklearn.utils import class_weight
from transformers import pipeline

from core.classifier import load_classifier
from core.errors import SettingError
from core.finetuning import (
    Done,
    Epoch,
    FinetuneConfig,
    as_record,
    balancing,
    classify,
    epochs_in,
    finetune,
    job,
)
from core.models import wrap
from core.training import StepDone

GOOD = ["the cat sat on the warm mat", "moss in light", "the lamp is warm", "warm light slowly"]
BAD = ["a dog ran in rain", "weak light in rain", "the river ran", "rain on the bank"]
TRAIN = pd.DataFrame({"text": (GOOD + BAD) * 4, "label": (["good"] * 4 + ["bad"] * 4) * 4})
TEST = pd.DataFrame({"text": [*GOOD[:2], *BAD[:3]], "label": ["good"] * 2 + ["bad"] * 3})
CONFIG = FinetuneConfig(epochs=4, batch_size=8, learning_rate=1e-2, head_factor=1)


def run(m, config=CONFIG, train=TRAIN, test=TEST):
    return list(finetune(m, train, test, config))


@pytest.fixture(scope="module")
def events(tiny):
    return run(tiny)


def test_events_come_in_order(events):
    epochs = [e for e in events if isinstance(e, Epoch)]
    assert [e.number for e in epochs] == [0, 1, 2, 3, 4]
    assert epochs[0].train_loss is None
    steps = [e for e in events if isinstance(e, StepDone)]
    assert [e.step for e in steps] == list(range(1, 17))
    assert epochs[1].train_loss == pytest.approx(np.mean([s.loss for s in steps[:4]]))
    assert isinstance(events[-1], Done)


def test_it_learns(events):
    epochs = [e for e in events if isinstance(e, Epoch)]
    assert epochs[-1].held_out_loss < epochs[0].held_out_loss
    assert epochs[-1].accuracy == 1.0


def test_measures_against_scikit_learn(events):
    last = [e for e in events if isinstance(e, Epoch)][1]
    found = classify(events[-1].result, TEST["text"].tolist())
    final = [e for e in events if isinstance(e, Epoch)][-1]
    expected = metrics.confusion_matrix(TEST["label"], found["label"], labels=["bad", "good"])
    assert (final.confusion == expected).all()
    assert final.accuracy == metrics.accuracy_score(TEST["label"], found["label"])
    assert final.macro_f1 == pytest.approx(
        metrics.f1_score(TEST["label"], found["label"], average="macro")
    )
    assert last.confusion.sum() == len(TEST)


def test_the_model_that_was_passed_in_is_never_changed(tiny, events):
    before = tiny.weights_hash
    assert events[-1].result.model.base_model is not tiny.model.base_model
    fresh = torch.cat([p.flatten() for p in tiny.model.base_model.embeddings.parameters()])
    tuned = events[-1].result.model.base_model.embeddings.parameters()
    assert not torch.equal(fresh, torch.cat([p.detach().flatten() for p in tuned]))
    assert tiny.weights_hash == before
    assert not tiny.model.training


def test_same_seed_same_history_whatever_is_drawn_in_between(tiny, events):
    torch.rand(3)
    again = finetune(tiny, TRAIN, TEST, CONFIG)
    losses = []
    for event in again:
        torch.rand(5)
        np.random.random(2)
        if isinstance(event, StepDone):
            losses.append(event.loss)
    assert losses == [e.loss for e in events if isinstance(e, StepDone)]


def frozen(m, **options):
    config = FinetuneConfig(
        epochs=2, batch_size=8, learning_rate=1e-2, head_factor=1, frozen=True, **options
    )
    return run(m, config)


def test_frozen_trains_the_head_only(tiny):
    result = frozen(tiny)[-1].result
    tuned = result.model.base_model.encoder.state_dict()
    for name, value in tiny.model.base_model.encoder.state_dict().items():
        assert torch.equal(tuned[name], value)
    pooler = result.model.base_model.pooler.dense.weight
    assert not torch.equal(
        pooler,
        run(tiny, FinetuneConfig(epochs=1, learning_rate=1e-9))[
            -1
        ].result.model.base_model.pooler.dense.weight,
    )


def test_frozen_measures_what_the_whole_model_says(tiny):
    events = frozen(tiny)
    last = [e for e in events if isinstance(e, Epoch)][-1]
    found = classify(events[-1].result, TEST["text"].tolist())
    assert last.confidence == pytest.approx(found["probability"].to_numpy(), abs=1e-5)
    names = np.array(events[-1].result.labels)
    assert names[last.predicted].tolist() == found["label"].tolist()


def test_frozen_takes_the_steps_of_a_run_through_the_whole_model(tiny):
    """Without dropout the vectors are constants: a run with the encoder's rate at nothing is equal."""
    config = copy.deepcopy(tiny.model.config)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    still = wrap(type(tiny.model)(config), tiny.tokenizer, name="still")
    still.model.load_state_dict(tiny.model.state_dict())
    quick = [e.loss for e in frozen(still) if isinstance(e, StepDone)]
    slow = FinetuneConfig(epochs=2, batch_size=8, learning_rate=1e-9, head_factor=1e7)
    made = [e.loss for e in run(still, slow) if isinstance(e, StepDone)]
    # the pooler belongs to BERT's base model, and so has the encoder's rate in the second run
    assert quick[0] == pytest.approx(made[0], abs=1e-5)
    assert quick[1] == pytest.approx(made[1], abs=2e-2)


def test_the_saved_folder_loads_in_transformers(tiny, events, tmp_path):
    classifier = events[-1].result
    work = job(tiny, TRAIN, TEST, CONFIG)
    work.save(events[-1], tmp_path)
    pipe = pipeline("text-classification", model=str(tmp_path))
    ours = classify(classifier, GOOD + BAD)
    for row, theirs in zip(ours.itertuples(), pipe(GOOD + BAD), strict=True):
        assert row.label == theirs["label"]
        assert row.probability == pytest.approx(theirs["score"], abs=1e-4)
    again = load_classifier(tmp_path)
    assert again.labels == classifier.labels
    assert again.max_tokens == classifier.max_tokens
    assert classify(again, GOOD)["probability"].tolist() == ours["probability"][:4].tolist()
    assert "`good`" in (tmp_path / "README.md").read_text()


def test_examples_are_followed_from_epoch_to_epoch(tiny):
    events = list(finetune(tiny, TRAIN, TEST, CONFIG, examples=["a dog ran", "warm light"]))
    epochs = [e for e in events if isinstance(e, Epoch)]
    found = classify(events[-1].result, ["a dog ran", "warm light"])
    assert epochs[-1].examples[:, 0] == pytest.approx(found["p: bad"].to_numpy(), abs=1e-6)
    assert epochs[0].examples.shape == (2, 2)
    assert not np.allclose(epochs[0].examples, epochs[-1].examples, atol=1e-3)


def test_records_give_the_epochs_back(events):
    records = [r for e in events if (r := as_record(e)) is not None]
    assert [r["step"] for r in records if r["event"] == "step"] == list(range(1, 17))
    for told, event in zip(
        epochs_in(json.loads(json.dumps(records))),
        (e for e in events if isinstance(e, Epoch)),
        strict=True,
    ):
        assert (told.confusion == event.confusion).all()
        assert (told.predicted == event.predicted).all()
        assert told.confidence == pytest.approx(event.confidence, abs=1e-6)
        assert (told.number, told.train_loss, told.held_out_loss, told.accuracy) == (
            event.number,
            event.train_loss,
            event.held_out_loss,
            event.accuracy,
        )


def test_class_weights_against_scikit_learn():
    targets = np.array([0] * 7 + [1] * 2 + [2])
    expected = class_weight.compute_class_weight("balanced", classes=np.arange(3), y=targets)
    assert balancing(targets, 3) == pytest.approx(expected)


def test_balanced_rows_pull_on_a_rare_label(tiny):
    rare = pd.concat([TRAIN[TRAIN["label"] == "good"], TRAIN[TRAIN["label"] == "bad"].head(2)])
    plain, even = (
        [
            e
            for e in run(
                tiny,
                FinetuneConfig(epochs=2, learning_rate=1e-3, head_factor=1, balanced=balanced),
                rare,
            )
            if isinstance(e, Epoch)
        ][-1]
        for balanced in (False, True)
    )
    assert (even.predicted == 0).sum() + even.confidence[even.predicted == 0].sum() >= (
        plain.predicted == 0
    ).sum() + plain.confidence[plain.predicted == 0].sum()


def test_patience_ends_the_run_and_goes_back_to_the_best_epoch(tiny):
    wild = FinetuneConfig(epochs=30, batch_size=8, learning_rate=3e-2, head_factor=1, patience=2)
    flipped = TEST.assign(label=["bad", "bad", "good", "good", "good"])
    events = run(tiny, wild, test=flipped)  # what it learns is wrong here, so this loss must rise
    epochs = [e for e in events if isinstance(e, Epoch)]
    best = min(epochs, key=lambda e: e.held_out_loss)
    assert epochs[-1].number == best.number + 2 < 30
    found = classify(events[-1].result, flipped["text"].tolist())
    assert found["probability"].to_numpy() == pytest.approx(best.confidence, abs=1e-5)


def test_stop_keeps_what_was_learned(tiny):
    seen = []
    events = list(
        finetune(tiny, TRAIN, TEST, CONFIG, stop=lambda: len(seen) >= 3 or seen.append(1))
    )
    assert [e.step for e in events if isinstance(e, StepDone)] == [1, 2, 3]
    assert isinstance(events[-1], Done)
    assert not events[-1].result.model.training


def test_a_text_alone_and_in_a_batch_with_a_long_one(events):
    classifier = events[-1].result
    alone = classify(classifier, ["a dog ran"])["probability"][0]
    together = classify(classifier, ["the cat " * 40, "a dog ran"])["probability"][1]
    assert together == pytest.approx(alone, abs=1e-5)


def test_closing_stops_at_once(tiny):
    started = finetune(tiny, TRAIN, TEST, FinetuneConfig(epochs=50))
    next(e for e in started if isinstance(e, StepDone))
    started.close()
    assert next(started, None) is None


def frame(texts, labels):
    return pd.DataFrame({"text": texts, "label": labels})


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        (frame([], []), TEST, "no training rows"),
        (TRAIN, frame([], []), "no test rows"),
        (frame(["a", "b"], ["ok", "ok"]), TEST, "All training rows have the label “ok”"),
        (TRAIN, frame(["a"], ["odd"]), "labels that training lacks: odd"),
        (pd.DataFrame({"text": ["a"]}), TEST, "no column label"),
    ],
)
def test_nothing_to_learn_is_said(tiny, train, test, said):
    with pytest.raises(SettingError, match=said):
        finetune(tiny, train, test)


@pytest.mark.parametrize("labels", [[1, 5], [-1, 1], [True, False], [10, 30], [" yes", "no"]])
def test_any_pair_of_labels(tiny, labels):
    data = frame(GOOD + BAD, [labels[0]] * 4 + [labels[1]] * 4)
    result = run(tiny, FinetuneConfig(epochs=1), data, data)[-1].result
    assert result.labels == tuple(sorted(map(str, labels)))


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"learning_rate": 1.0}]
)
def test_silly_settings_are_refused(wrong):
    with pytest.raises(SettingError):
        FinetuneConfig(**wrong)
