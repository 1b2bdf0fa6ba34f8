# Two commands on a fresh machine: `make run` and `make test`. PORT=8600 make run uses another port.
# The first Python that Streamlit 1.67 runs on: 3.11 or newer.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)
PORT ?= 8501
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test bench clean

run: $(VENV)/.run
	$(BIN)/streamlit run streamlit_app.py --server.port $(PORT)

test: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench_score_positions
	$(BIN)/python -m benchmarks.bench_finetuning
	$(BIN)/python -m benchmarks.bench_pretraining
	$(BIN)/python -m benchmarks.bench_vectors
	$(BIN)/python -m benchmarks.bench_app

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(NEW_ENOUGH)' || \
	  { echo "Cloze needs Python 3.11 or newer; name one with PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(VENV)/bin/python requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@
