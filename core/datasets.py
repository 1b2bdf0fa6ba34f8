"""Built-in text: one hundred sentences of everyday English, written for this project."""

from __future__ import annotations

from functools import cache

from core.models import ASSETS


@cache
def sentences() -> tuple[str, ...]:
    """One hundred sentences, each on one subject of its own."""
    return tuple((ASSETS / "sentences.txt").read_text(encoding="utf-8").splitlines())
