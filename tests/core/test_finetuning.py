import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics
from transformers import pipeline

from core.errors import SettingError
from core.finetuning import Done, Epoch, FinetuneConfig, classify, finetune, macro_f1
from core.training import StepDone

GOOD = ["the cat sat on the warm mat", "moss in light", "the lamp is warm", "warm light slowly"]
BAD = ["a dog ran in rain", "weak light in rain", "the river ran", "rain on the bank"]
TRAIN = pd.DataFrame({"text": (GOOD + BAD) * 4, "label": (["good"] * 4 + ["bad"] * 4) * 4})
TEST = pd.DataFrame({"text": [*GOOD[:2], *BAD[:3]], "label": ["good"] * 2 + ["bad"] * 3})
CONFIG = FinetuneConfig(epochs=4, batch_size=8, learning_rate=1e-2)


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


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_against_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    true, found = rng.integers(0, 4, 30), rng.integers(0, 3, 30)
    confusion = metrics.confusion_matrix(true, found, labels=range(4))
    expected = metrics.f1_score(true, found, average="macro", labels=range(4), zero_division=0)
    assert macro_f1(confusion) == pytest.approx(expected)


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


def test_frozen_trains_the_head_only(tiny):
    result = run(tiny, FinetuneConfig(epochs=1, batch_size=8, learning_rate=1e-2, frozen=True))[-1]
    tuned = result.result.model.base_model.encoder.state_dict()
    for name, value in tiny.model.base_model.encoder.state_dict().items():
        assert torch.equal(tuned[name], value)


def test_the_saved_folder_loads_in_transformers(events, tmp_path):
    classifier = events[-1].result
    classifier.save(tmp_path)
    pipe = pipeline("text-classification", model=str(tmp_path))
    ours = classify(classifier, GOOD + BAD)
    for row, theirs in zip(ours.itertuples(), pipe(GOOD + BAD), strict=True):
        assert row.label == theirs["label"]
        assert row.probability == pytest.approx(theirs["score"], abs=1e-4)


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
