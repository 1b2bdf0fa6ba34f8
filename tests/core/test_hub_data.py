import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import ModelError, SettingError
from core.hub_data import hub_files, hub_table


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub of one data set, whose files lie in a folder."""
    features = {"label": {"_type": "ClassLabel", "names": ["neg", "pos"]}}
    table = pa.table({"text": ["bad", "good", None], "label": [0, 1, 1]})
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "train-0.parquet")
    pd.DataFrame({"text": ["so"], "label": [7]}).to_parquet(tmp_path / "plain.parquet")
    (tmp_path / "test.csv").write_text("text;label\nfine;pos\n")
    (tmp_path / "README.md").write_text("")

    def files(self, name, repo_type):
        assert (name, repo_type) == ("owner/set", "dataset")
        return sorted(path.name for path in tmp_path.iterdir())

    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", files)
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda name, file, repo_type: str(tmp_path / file)
    )


def test_files_for_training_come_first(hub):
    assert hub_files(" owner/set ") == ["train-0.parquet", "plain.parquet", "test.csv"]


def test_classes_are_named_and_blanks_are_text(hub):
    frame = hub_table("owner/set", "train-0.parquet").frame
    assert frame.to_dict("list") == {"text": ["bad", "good", ""], "label": ["neg", "pos", "pos"]}
    assert hub_table("owner/set", "plain.parquet").frame["label"].tolist() == ["7"]


def test_csv_is_read_as_an_upload_is(hub):
    table = hub_table("owner/set", "test.csv")
    assert table.frame["label"].tolist() == ["pos"]
    assert "semicolon" in table.notes[0]


def test_bad_names_and_no_network(monkeypatch):
    for name in ("", "a/b/c", "not a name"):
        with pytest.raises(SettingError, match="not a data set's name"):
            hub_files(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="can't be reached"):
        hub_files("owner/set")


def test_a_set_without_tables(monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda *a, **k: ["x.bin"])
    with pytest.raises(SettingError, match="no Parquet"):
        hub_files("owner/set")
