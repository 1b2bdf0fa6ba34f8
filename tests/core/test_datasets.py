import pandas as pd
import pytest

from core.datasets import (
    labelled,
    paragraphs,
    python_reference,
    read_table,
    reviews,
    sentences,
    split,
    without,
)
from core.errors import SettingError


def test_one_hundred_different_sentences():
    found = sentences()
    assert len(set(found)) == 100
    assert all(s[0].isupper() and s.endswith(".") and 5 <= len(s.split()) <= 20 for s in found)


def test_the_python_reference_is_long_and_clean():
    found = python_reference()
    assert sum(map(len, found)) > 300_000
    assert not any("\n" in p or "  " in p for p in found)
    assert any("assignment" in p for p in found)


def test_paragraphs_of_odd_text():
    assert paragraphs("") == []
    assert paragraphs(" \n\n \t\n***\n\n12 34") == []
    assert paragraphs("one two three\r\n\r\nfour five six seven") == [
        "one two three", "four five six seven",
    ]  # fmt: skip


def test_the_reviews_are_many_balanced_and_different():
    frame = reviews()
    counts = frame["label"].value_counts()
    assert counts["positive"] == counts["negative"] >= 200
    assert frame["text"].is_unique
    assert frame["text"].str.len().between(12, 130).all()


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("text,label\nfine,pos\nbad,neg", "comma"),
        ("text;label\nwell, it rained;pos\nno, never;neg", "semicolon"),
        ("text\tlabel\na, b\tpos", "tab"),
        ("text|label\na, b|pos", "bar"),
        ('text,label\n"two\nlines, quoted",pos', "comma"),
    ],
)
def test_the_separator_is_found_and_said(text, separator):
    table = read_table(text.encode(), "x.csv")
    assert list(table.frame.columns) == ["text", "label"]
    assert f"separated by a {separator}" in table.notes[-1]
    assert table.frame["label"].iloc[0] == "pos"


def test_one_column_is_not_split_at_a_letter():
    table = read_table(b"text\nmerry men\nsummer hums", "x.csv")
    assert table.frame["text"].tolist() == ["merry men", "summer hums"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_encodings(encoding):
    table = read_table("text,label\ncafé,pos".encode(encoding), "x.csv")
    assert table.frame["text"][0] == "café"
    assert list(table.frame.columns) == ["text", "label"]


def test_every_cell_is_text():
    table = read_table(b"text,label\n12,1\n3.5,0\n,1\n2026-01-01,True", "x.csv")
    assert table.frame.map(type).eq(str).all().all()


def test_jsonl():
    table = read_table(b'{"text": "a", "label": 1}\n\n{"text": "b"}', "x.jsonl")
    assert table.frame["label"].tolist() == ["1", ""]


@pytest.mark.parametrize(
    ("data", "name", "said"),
    [
        (b"", "x.csv", "x.csv is empty"),
        (b"text,label\n", "x.csv", "a header and no rows: its columns are text, label"),
        (b"\x00\x01PNG", "x.csv", "not a text file"),
        (b"{oops", "x.jsonl", "line 1, is not JSON"),
        (b"[1]", "x.jsonl", "line 1, is not a JSON object"),
        (b"\n", "x.jsonl", "is empty"),
    ],
)
def test_what_is_not_a_table_is_said(data, name, said):
    with pytest.raises(SettingError, match=said):
        read_table(data, name)


def test_ragged_rows_are_named():
    table = read_table(b"text,label\na,pos\nb\nc,neg,more", "x.csv")
    assert "2 rows have another number of fields than the header: rows 2, 3" in table.notes[-1]
    assert table.frame["label"].tolist() == ["pos", "", "neg"]


def frame_of(texts, labels):
    return pd.DataFrame({"t": texts, "l": labels})


def test_rows_without_text_or_label_are_counted_and_named():
    table = labelled(frame_of(["a", "  ", "c", "d"], ["x", "y", "", " y "]), "t", "l")
    assert table.frame.to_numpy().tolist() == [["a", "x"], ["d", "y"]]
    assert "1 rows have no text and were left out: row 2." in table.notes
    assert "1 rows have no label and were left out: row 3." in table.notes


def test_doubles_and_contradictions_are_left_out():
    table = labelled(
        frame_of(["a", "a", "b", "b", "c", "d"], ["x", "x", "x", "y", "x", "y"]), "t", "l"
    )
    assert table.frame["text"].tolist() == ["a", "c", "d"]
    assert any("repeat an earlier one" in note and "row 2" in note for note in table.notes)
    assert any("one text two labels" in note and "rows 3, 4" in note for note in table.notes)


def test_near_labels_are_pointed_out_and_one_label_is_refused():
    table = labelled(frame_of(["a", "b", "c"], ["yes", " Yes", "no"]), "t", "l")
    assert any("Yes and yes" in note for note in table.notes)
    with pytest.raises(SettingError, match="two labels at least to tell apart; found: ok"):
        labelled(frame_of(["a", "b"], ["ok", "ok"]), "t", "l")


def test_the_split_keeps_proportions_and_single_rows_in_training():
    rows = pd.DataFrame(
        {"text": [f"t{i}" for i in range(21)], "label": ["a"] * 10 + ["b"] * 10 + ["c"]}
    )
    train, test = split(rows, share=0.3, seed=1)
    assert test.frame["label"].value_counts().to_dict() == {"a": 3, "b": 3}
    assert "c" in train.frame["label"].tolist()
    assert train.notes == ("Labels with a single row are in training only: c.",)
    assert set(train.frame["text"]) | set(test.frame["text"]) == set(rows["text"])
    assert not set(train.frame["text"]) & set(test.frame["text"])
    assert split(rows, share=0.3, seed=1)[1].frame.equals(test.frame)
    with pytest.raises(SettingError, match="No label has two rows"):
        split(rows.iloc[[0, 10, 20]].reset_index(drop=True))


def test_overlap_leaves_training():
    train = pd.DataFrame({"text": ["a", "b", "c"], "label": ["x", "y", "x"]})
    test = pd.DataFrame({"text": ["b"], "label": ["y"]})
    rest = without(train, test)
    assert rest.frame["text"].tolist() == ["a", "c"]
    assert "1 texts are in the test rows too" in rest.notes[0]
    assert without(rest.frame, test).notes == ()
    with pytest.raises(SettingError, match="nothing is left"):
        without(test, test)
