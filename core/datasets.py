"""Data to train on: built-in text and reviews, tables that people upload, checks and splits.

Rows are named as a person sees them: row 1 is the first below the header.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from core.errors import SettingError
from core.models import ASSETS

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_SENTENCE = "The cat sat on the warm mat"
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


@cache
def sentences() -> tuple[str, ...]:
    """One hundred sentences, each on one subject of its own."""
    return tuple((ASSETS / "sentences.txt").read_text(encoding="utf-8").splitlines())


@cache
def python_reference() -> tuple[str, ...]:
    """Paragraphs of the language reference that ships inside Python (`pydoc_data.topics`)."""
    from pydoc_data.topics import topics

    return tuple(p for name in sorted(topics) for p in paragraphs(topics[name]))


def paragraphs(text: str) -> list[str]:
    """Text between blank lines, each paragraph on one line; rules and crumbs are left out.

    >>> paragraphs("One line\\nand more.\\n\\n****\\n\\nThe next one.")
    ['One line and more.', 'The next one.']
    """
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [block for block in blocks if sum(c.isalpha() for c in block) >= 8]


@cache
def reviews() -> pd.DataFrame:
    """Short reviews written for this project, half of them positive: columns label, text."""
    return _tsv("reviews.tsv")


@cache
def senses() -> pd.DataFrame:
    """Words of several meanings in sentences written for this project: word, sense, sentence."""
    return _tsv("senses.tsv")


@cache
def pairs() -> pd.DataFrame:
    """Pairs of sentences written for this project: grade (0 unrelated, 5 the same meaning), one, other."""
    return _tsv("pairs.tsv").astype({"grade": float})


def graded(frame: pd.DataFrame, one: str, other: str, grade: str) -> Table:
    """Pairs to compare with: columns grade, one, other; rows without a text or a number are named."""
    import pandas as pd

    rows = pd.DataFrame(
        {
            "grade": pd.to_numeric(frame[grade], errors="coerce"),
            "one": frame[one].astype(str).str.strip(),
            "other": frame[other].astype(str).str.strip(),
        }
    )
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    notes = []
    for bad, said in (
        (rows["grade"].isna(), "a grade that is not a number"),
        ((rows["one"] == "") | (rows["other"] == ""), "no text on one side"),
    ):
        if bad[rows.index].any():
            found = rows.index[bad[rows.index]]
            notes.append(f"{len(found)} rows have {said} and were left out: {_listed(found)}.")
            rows = rows[~bad[rows.index]]
    if not len(rows):
        raise SettingError("No row has two texts and a number as its grade.")
    return Table(rows.reset_index(drop=True), tuple(notes))


def without(train: pd.DataFrame, test: pd.DataFrame) -> Table:
    """Training rows without those whose text is tested too, which would flatter the figures."""
    shared = train["text"].isin(set(test["text"]))
    notes: tuple[str, ...] = ()
    if shared.any():
        notes = (
            f"{int(shared.sum())} texts are in the test rows too and were left out of training.",
        )
    rest = train[~shared].reset_index(drop=True)
    if not len(rest):
        raise SettingError(
            "Every training text is in the test rows too: nothing is left to train on."
        )
    return Table(rest, notes)


def _tsv(name: str) -> pd.DataFrame:
    """A table of ours: tabs between the fields, names in the first line."""
    import pandas as pd

    header, *rows = (ASSETS / name).read_text(encoding="utf-8").splitlines()
    return pd.DataFrame([row.split("\t") for row in rows], columns=header.split("\t"))


@dataclass(frozen=True)
class Table:
    """An upload as it was read: every cell is text, and `notes` say how it was read."""

    frame: pd.DataFrame
    notes: tuple[str, ...]


def read_table(data: bytes, name: str) -> Table:
    """A CSV, TSV or JSONL file, in UTF-8 (with or without a byte order mark) or Latin-1.

    The separator is the one of comma, semicolon, tab and bar under which most rows have the number
    of fields of the header, and more than one. Raises `SettingError` where there is no table.
    """
    import pandas as pd

    text, decoding = _decoded(data, name)
    notes = list(decoding)
    if name.lower().endswith((".jsonl", ".ndjson")):
        return Table(pd.DataFrame(_json_rows(text, name)).fillna(""), tuple(notes))
    if not text.strip():
        raise SettingError(f"{name} is empty.")
    separator = _separator(text)
    notes.append(f"Fields are separated by a {SEPARATORS[separator]}.")
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) if row]
    header = [cell.strip() or f"column {i}" for i, cell in enumerate(rows[0], 1)]
    odd = [number for number, row in enumerate(rows[1:], 1) if len(row) != len(header)]
    if odd:
        notes.append(
            f"{len(odd)} rows have another number of fields than the header: {_listed(odd)}. "
            "What is missing was left empty, and what was too much left out."
        )
    width = len(header)
    body = [(row + [""] * width)[:width] for row in rows[1:]]
    if not body:
        raise SettingError(f"{name} has a header and no rows: its columns are {', '.join(header)}.")
    return Table(pd.DataFrame(body, columns=header), tuple(notes))


def read_texts(data: bytes, name: str) -> Table:
    """A table as `read_table`, or a TXT file with a text a line, which becomes the column text."""
    import pandas as pd

    if not name.lower().endswith(".txt"):
        return read_table(data, name)
    text, notes = _decoded(data, name)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise SettingError(f"{name} is empty.")
    return Table(pd.DataFrame({"text": lines}), notes)


def labelled(frame: pd.DataFrame, text: str, label: str) -> Table:
    """Rows to learn from: columns text and label, without blanks, doubles and contradictions.

    Blanks around labels are trimmed. Of rows with the same text and label one is kept; a text with
    two labels is left out. Raises `SettingError` if fewer than two labels remain.
    """
    import pandas as pd

    rows = pd.DataFrame(
        {
            "text": frame[text].astype(str).str.strip(),
            "label": frame[label].astype(str).str.strip(),
        }
    )
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    notes = []
    for column in ("text", "label"):
        blank = rows.index[rows[column] == ""]
        if len(blank):
            notes.append(f"{len(blank)} rows have no {column} and were left out: {_listed(blank)}.")
            rows = rows.drop(blank)
    double = rows.index[rows.duplicated()]
    if len(double):
        notes.append(
            f"{len(double)} rows repeat an earlier one and were left out: {_listed(double)}."
        )
        rows = rows.drop(double)
    torn = rows.index[rows.duplicated("text", keep=False)]
    if len(torn):
        notes.append(
            f"{len(torn)} rows give one text two labels and were left out: {_listed(torn)}."
        )
        rows = rows.drop(torn)
    near = _near_labels(rows["label"].unique().tolist())
    if near:
        notes.append(f"Labels that differ in case only are kept apart: {near}.")
    if rows["label"].nunique() < 2:
        found = ", ".join(rows["label"].unique()) or "none"
        raise SettingError(f"There must be two labels at least to tell apart; found: {found}.")
    return Table(rows.reset_index(drop=True), tuple(notes))


def split(frame: pd.DataFrame, *, share: float = 0.25, seed: int = 0) -> tuple[Table, Table]:
    """Training and test rows, each label in the same proportion.

    A label with one row stays in training, which is said. Raises `SettingError` if no test row is
    left.
    """
    if not 0 < share < 1:
        raise SettingError(f"The share of test rows must be between 0 and 1, not {share}.")
    rng = np.random.default_rng(seed)
    test: list[int] = []
    single = []
    for label, rows in frame.groupby("label").indices.items():
        if len(rows) < 2:
            single.append(str(label))
            continue
        count = min(len(rows) - 1, max(1, round(share * len(rows))))
        test += rng.permutation(rows)[:count].tolist()
    if not test:
        raise SettingError("No label has two rows, so that none can be held out for testing.")
    notes: tuple[str, ...] = ()
    if single:
        notes = (f"Labels with a single row are in training only: {', '.join(single)}.",)
    chosen = np.isin(np.arange(len(frame)), test)
    return (
        Table(frame[~chosen].reset_index(drop=True), notes),
        Table(frame[chosen].reset_index(drop=True), ()),
    )


def _decoded(data: bytes, name: str) -> tuple[str, tuple[str, ...]]:
    """The text of a file, and a note if it was not UTF-8."""
    notes: tuple[str, ...] = ()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
        notes = ("The file is not UTF-8; it was read as Latin-1.",)
    if "\0" in text:
        raise SettingError(f"{name} is not a text file.")
    return text, notes


def _json_rows(text: str, name: str) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise SettingError(f"{name}, line {number}, is not JSON: {error.msg}.") from error
            if not isinstance(row, dict):
                raise SettingError(f"{name}, line {number}, is not a JSON object.")
            rows.append({str(k): "" if v is None else str(v) for k, v in row.items()})
    if not rows:
        raise SettingError(f"{name} is empty.")
    return rows


def _separator(text: str) -> str:
    """The separator under which the rows agree best with the header; the comma if none does.

    >>> _separator("text;label\\nwell, it rained;pos"), _separator("text\\nmerry men")
    (';', ',')
    """
    agreement = {}
    for separator in SEPARATORS:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        widths = [len(row) for row, _ in zip(lines, range(1000), strict=False) if row]
        same = sum(width == widths[0] for width in widths) / len(widths)
        agreement[separator] = same if widths[0] > 1 else 0.0
    return max(agreement, key=lambda s: agreement[s])


def _near_labels(labels: list[str]) -> str:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(label.casefold(), []).append(label)
    return "; ".join(" and ".join(sorted(group)) for group in groups.values() if len(group) > 1)


def _listed(rows: Sequence[int] | pd.Index, most: int = 10) -> str:
    shown = ", ".join(str(row) for row in list(rows)[:most])
    return f"row{'s' if len(rows) > 1 else ''} {shown}" + (" and more" if len(rows) > most else "")
