# Every target works alone on a machine with Python 3.11 to 3.13, a C compiler and make.
# make PYTHON=/path/to/python chooses the interpreter of a new environment; make VENV=dir puts it elsewhere.

VENV ?= .venv
WORKERS ?= 2
# `ci` tries the same examples each time; make test HYPOTHESIS_PROFILE=dev tries new ones.
export HYPOTHESIS_PROFILE ?= ci
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
BUILD_INPUTS := pyproject.toml $(wildcard setup.py csrc/*.pyx csrc/*.pxd csrc/*.h)
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)
ASV := cd asv_benchmarks && $(abspath $(BIN))/asv
ASV_PYTHON := existing:$(abspath $(BIN))/python

.PHONY: help demo install dev test test-all lint format types contracts check bench bench-check clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.package ## build, then trace, check and run a kernel
	$(BIN)/tilelang demo

install: $(VENV)/.package ## build into .venv, with what the package needs
dev: $(VENV)/.dev ## the same with every tool of the targets below

test: $(VENV)/.test ## fast tier of the tests
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) $(ARGS)

test-all: $(VENV)/.test ## every test
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## apply ruff's fixes and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev ## mypy
	$(BIN)/mypy

contracts: $(VENV)/.dev ## import contracts
	$(BIN)/lint-imports

check: lint types contracts bench-check ## all static checks

bench-check: $(VENV)/.dev ## benchmarks import and have valid signatures
	$(ASV) check -E $(ASV_PYTHON)

bench: $(VENV)/.dev ## run the benchmarks on the working tree; ARGS='--bench pattern' selects
	$(ASV) machine --yes
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE sh -c '$(ASV) run -E $(ASV_PYTHON) --show-stderr $(ARGS)'

clean: ## remove the environment and what building left
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find tilelang csrc -name '*.so' -delete

# The environment, once; a stamp per set of extras, renewed when the build's inputs change.
$(BIN)/python:
	@for name in $(CANDIDATES); do \
	  if command -v "$$name" >/dev/null 2>&1 && \
	     "$$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then \
	    echo "$(VENV): $$("$$name" --version)"; exec "$$name" -m venv $(VENV); \
	  fi; \
	done; echo "no Python 3.11 to 3.13 among: $(CANDIDATES); set PYTHON=/path/to/python" >&2; exit 1

$(VENV)/.package: $(BUILD_INPUTS) | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.test: $(BUILD_INPUTS) | $(BIN)/python
	$(PIP) --editable '.[test]'
	@touch $(VENV)/.package $@

$(VENV)/.dev: $(BUILD_INPUTS) | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $(VENV)/.package $(VENV)/.test $@
