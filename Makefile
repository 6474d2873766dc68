# Everything happens in a virtual environment of its own; nothing needs to be installed first but Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint bench clean

demo: $(VENV)/.installed
	$(BIN)/ropescope demo --out out/demo
	$(BIN)/ropescope dynamics results/number-0 results/letter-1 --out out/dynamics

test: lint
	$(BIN)/python -m pytest --ignore=tests/test_bad_input.py
	$(BIN)/python -m pytest tests/test_bad_input.py --no-shape-checks

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/ropescope bench --out out/bench

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

clean:
	rm -rf $(VENV) out
