import pytest


def test_home_describes_the_loaded_model(app):
    app.run()
    assert not app.exception
    figures = {metric.label: metric.value for metric in app.metric}
    assert figures["Layers"] == "6"
    assert figures["Attention heads"] == "12"
    assert figures["Hidden size"] == "384"
    assert figures["Vocabulary"] == "30,522"
    beside = app.dataframe[1].value
    assert beside.loc[1].tolist() == ["BERT-base", 12, 768, 12, 110.0]
    assert beside.loc[2, ["Model", "Layers", "Hidden size"]].tolist() == ["BERT-large", 24, 1024]


def test_home_shows_what_the_model_reads(app):
    app.run()
    one, pair = app.dataframe[2].value, app.dataframe[3].value
    assert one.loc["Token"].tolist() == [
        "[CLS]", "the", "cat", "sat", "on", "the", "warm", "mat", "[SEP]",
    ]  # fmt: skip
    assert set(one.loc["Segment id"]) == {"0"}
    assert pair.loc["Segment id"].tolist() == ["0"] * 9 + ["1"] * 5


def test_home_leads_to_every_page(app):
    app.run()
    assert not app.exception
    links = [link.proto.label.replace("\\", "") for link in app.get("page_link")]
    assert links == [
        "Bidirectional context",
        "Masking strategy",
        "Predicting [MASK]",
        "Pre-training loss",
        "Fine-tuning",
        "Contextual embeddings",
        "Sentences and corpora",
    ]


def model_error(app, name):
    """What the side bar says to a model named in the address; the page must stand regardless."""
    app.query_params["model"] = name
    app.run()
    assert not app.exception
    assert {metric.label for metric in app.metric} >= {"Layers", "Parameters"}
    assert "Still in use: embedded" in app.sidebar.caption[0].value
    return app.sidebar.error[0].value.replace("\\", "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Not A Model!!", "is not a model name"),
        ("/etc", "outside this server"),
        ("./tests", "not a model folder"),
        ("./README.md", "is a file"),
    ],
)
def test_a_bad_model_name_keeps_the_last_model(app, name, said):
    assert said in model_error(app, name)


def test_a_hub_name_without_network(app, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "the hub can't be reached" in model_error(app, "someone/some-bert")


def test_a_checkpoint_without_head(app, headless_folder, monkeypatch):
    monkeypatch.setenv("CLOZE_MODELS", str(headless_folder.parent))
    assert "no trained masked-LM head" in model_error(app, f"./{headless_folder.name}")
