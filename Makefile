# Two commands do everything: `make demo` and `make test`. Both need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-lowest lint format docs bench clean

demo: $(VENV)/.installed
	$(BIN)/rmcalib eval

test: lint
	$(BIN)/pytest -n auto --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lowest supported versions, in an environment of their own. Old libraries warn about their own age.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e '.[dev]'
	.venv-lowest/bin/pytest -n auto --dist worksteal -W default

docs: $(VENV)/.installed-dev
	$(INSTALL) -e '.[docs]'
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_notions.py
	$(BIN)/python scripts/bench_report.py
	$(BIN)/python scripts/bench_prolr.py
	$(BIN)/python scripts/bench_scoring.py

clean:
	rm -rf $(VENV) .venv-lowest .venv-vllm runs site

# The stamps make a second run skip the installation until the requirements change.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rmcalib needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	@echo "Installing rmcalib into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@
