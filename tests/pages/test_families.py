"""Every page and each of its views with a model of every family."""

import pytest

from core import session
from tests.families import FAMILIES, build
from tests.pages.conftest import fresh

VIEWS = {
    "0_Home": [""],
    "1_Bidirectional_context": ["The experiment", "Attention", "All heads", "Heads off"],
    "2_Masking_strategy": [""],
    "3_Predicting_mask": [
        "Every position",
        "Which words matter",
        "Layer by layer",
        "Your candidates",
        "Two sentences",
        "Can it write?",
    ],
    "4_Pretraining_loss": ["Recorded run", "Train now"],
    "5_Finetuning": ["Recorded run", "Train now"],
    "6_Contextual_embeddings": ["One word", "All words"],
    "7_Sentences_and_corpora": ["Pairs", "Matrix", "Corpus"],
}


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return build(request.param, tmp_path_factory.mktemp("family"))


@pytest.mark.parametrize("page", VIEWS)
def test_every_view_of_a_page(folder, page, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOZE_RUNS", str(tmp_path))
    monkeypatch.setenv("CLOZE_MODELS", str(folder.parent))
    # a name of one's own can't be typed into AppTest's select box
    monkeypatch.setattr(session, "SUGGESTED", (str(folder),))
    app = fresh().run()
    app.switch_page(f"pages/{page}.py")
    for view in VIEWS[page]:
        if view:
            app.session_state[f"p{page[0]}_view"] = view
        if view == "Heads off":
            app.session_state["p1_off"] = ["1.1", "2.2"]
        app.run()
        assert not app.exception
        assert not app.error
        assert (
            any(folder.name in c.value.replace("\\", "") for c in app.caption) or page[0] in "045"
        )
