"""Cloze: a live laboratory for BERT and masked language models. Start with `make run`."""

from core.session import run_app

run_app()
