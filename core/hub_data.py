"""Data sets of the Hugging Face hub by name, read as tables. No code of theirs is run."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from core.datasets import Table, read_table
from core.errors import SettingError
from core.models import explain

READABLE = (".parquet", ".csv", ".tsv", ".jsonl")


def hub_files(name: str) -> list[str]:
    """The files of a data set that can be read, those for training first.

    Raises `ModelError` (the hub's own errors: not found, no access, not reachable) or `SettingError`
    (no such file) with one clear sentence.
    """
    from huggingface_hub import HfApi

    name = name.strip()
    if name.count("/") > 1 or not name or any(c.isspace() for c in name):
        raise SettingError(f"“{name[:80]}” is not a data set's name: write it as owner/name.")
    try:
        files = HfApi().list_repo_files(name, repo_type="dataset")
    except Exception as error:
        raise explain(name, error) from error
    found = [file for file in files if file.lower().endswith(READABLE)]
    if not found:
        raise SettingError(f"{name} has no Parquet, CSV, TSV or JSONL file.")
    return sorted(found, key=lambda file: ("train" not in PurePosixPath(file).name, file))


def hub_table(name: str, file: str) -> Table:
    """One file of a data set as a table of text; named classes by their names."""
    from huggingface_hub import hf_hub_download

    try:
        path = Path(hf_hub_download(name.strip(), file, repo_type="dataset"))
    except Exception as error:
        raise explain(name, error) from error
    shown = PurePosixPath(file).name
    return (
        _parquet(path)
        if file.lower().endswith(".parquet")
        else read_table(path.read_bytes(), shown)
    )


def _parquet(path: Path) -> Table:
    import pandas as pd

    frame = pd.read_parquet(path)
    named = _class_names(path)
    for column in frame.columns:
        names = named.get(column)
        if names:
            frame[column] = [names[i] if 0 <= i < len(names) else str(i) for i in frame[column]]
    return Table(frame.fillna("").astype(str), ())


def _class_names(path: Path) -> dict[str, list[str]]:
    """Names of numbered classes, which the `datasets` library writes into a Parquet file."""
    import pyarrow.parquet as pq

    told = (pq.read_schema(path).metadata or {}).get(b"huggingface")
    if told is None:
        return {}
    features = json.loads(told).get("info", {}).get("features", {})
    return {
        column: feature["names"]
        for column, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }
