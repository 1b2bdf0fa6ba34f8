"""Built-in text: a hundred sentences written for this project, and Python's own language reference.

Paragraphs of text that people bring are cut here too.
"""

from __future__ import annotations

import re
from functools import cache

from core.models import ASSETS


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
