"""What leaves the app: CSV that a spreadsheet can't take for formulas, and folders as zip files."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_csv(frame: pd.DataFrame) -> str:
    """CSV of a frame; text that a spreadsheet would run as a formula gets an apostrophe before it.

    >>> import pandas as pd
    >>> safe_csv(pd.DataFrame({"token": ["=1+1", "cat"], "loss": [-0.5, 1.0]}))
    "token,loss\\n'=1+1,-0.5\\ncat,1.0\\n"
    """

    def safe(value: object) -> object:
        return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

    return frame.map(safe).to_csv(index=False)


def parquet(texts: Sequence[str], vectors: np.ndarray) -> bytes:
    """A Parquet file with the columns text and vector (a list of float32)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    listed = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    written = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts), "vector": listed}), written)
    return written.getvalue()


def zip_folder(folder: Path) -> bytes:
    """The files of a folder as a zip file, in `model/` whatever the folder is called."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"model/{path.name}")
    return packed.getvalue()
