"""Cloze's laboratory for masked language models, usable from a notebook without Streamlit.

One module per subject. Data flows one way: a page asks `session`, which asks a subject, which
answers with dataclasses, arrays or data frames; `charts` draws those. No subject imports a page,
`session` or `charts`.
"""
