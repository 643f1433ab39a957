.PHONY: setup demo test check conformance bench clean
PYTHON ?= python3
BIN := .venv/bin
VECTORS ?= tests/conformance/vectors

setup: .venv/installed
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy && $(BIN)/pyright && $(BIN)/lint-imports

test: setup
	$(BIN)/pytest -q -ra

conformance: setup
	$(BIN)/python -m tests.conformance.runner $(VECTORS)
