# Two commands do everything on a fresh machine: `make audit` and `make test`.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
BIN := $(VENV)/bin

.PHONY: audit test test-all test-foreign fuzz lint docs bench benchmarks gpu clean

audit: $(VENV)/.runtime  ## train, attack and report the quickstart suite on the embedded data set
	$(BIN)/fglaudit run quickstart --out runs/quickstart

JOBS ?= auto

test: $(VENV)/.dev  ## the quick tests, in a few minutes; those on real data sets skip where the data root is absent
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not foreign"

test-all: $(VENV)/.dev  ## every test but those of foreign frameworks
	$(BIN)/python -m pytest -n $(JOBS) -m "not foreign"

test-foreign: $(VENV)/.dev  ## tests that need other frameworks, which they name where they skip
	$(BIN)/python -m pytest -m foreign || [ $$? -eq 5 ]  # 5: there is none

fuzz: $(VENV)/.dev  ## mutated suites, graphs and run folders, and killed runs: no traceback, no hang, no other finding; a sample of it is part of the tests
	$(BIN)/python -m bench.fuzz

lint: $(VENV)/.dev
	$(BIN)/ruff check --no-cache .  # what is first party hangs on other files, which the cache does not watch
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.docs  ## the documentation site, in site/
	$(BIN)/mkdocs build --strict

bench: $(VENV)/.runtime  ## long measurements (10 seeds, paper tables); stop it and start it again as you like
	$(BIN)/python -m bench all

benchmarks: $(VENV)/.dev  ## speed and memory, medians of several runs; how cost grows, per protocol and attack
	$(BIN)/python -m bench.speed
	$(BIN)/python -m bench.speed.growth

gpu: $(VENV)/.dev  ## on a GPU: the tests that need one, then speed and memory of training in one table, bench/results/devices.csv
	FGLAUDIT_REQUIRE_GPU=1 $(BIN)/python -m pytest -m gpu
	$(BIN)/python -m bench.speed --device cuda
	$(BIN)/python -m bench devices

clean:
	rm -rf $(VENV) build *.egg-info runs bench/results site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The first line pins torch before anything else can pull another build of it.
$(VENV)/.runtime: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[metis]'
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	touch $@
