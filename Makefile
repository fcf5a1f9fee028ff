# `make demo` and `make test` do all set-up themselves: a local .venv, pinned packages, no compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help install warm demo test test-slow lint docs bench format clean
.DELETE_ON_ERROR:

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || \
		{ echo "npusim needs Python 3.11 to 3.14; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "this Python has no venv module (Debian, Ubuntu: install python3-venv)" >&2; exit 1; }
	rm -f $@
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

install: $(STAMP) ## create .venv and install npusim with its development tools

demo: $(STAMP) ## simulate Qwen2-1.5B on RK3588; writes runs/demo with timeline.html
	$(BIN)/npusim run rk3588 qwen2-1.5b --prompt 512 --generate 64 --quant w8a8 --out runs/demo

lint: $(STAMP) ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict npusim

# The memory kernel is compiled on first use (about a minute) and cached beside the sources.
warm: $(STAMP)
	$(BIN)/python tests/compile_kernels.py

test: lint warm ## lint, types, fast tests, documentation
	$(BIN)/pytest -n $(WORKERS)
	$(BIN)/mkdocs build --quiet --strict

test-slow: warm ## the tests marked slow
	$(BIN)/pytest -n $(WORKERS) -m slow

docs: $(STAMP) ## build the documentation into site/
	$(BIN)/mkdocs build --strict

bench: $(STAMP) ## measure speed and memory
	$(BIN)/python benchmarks/run.py

format: $(STAMP) ## rewrite sources with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove everything that make created
	rm -rf $(VENV) build dist runs site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find npusim tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
