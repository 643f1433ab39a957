.PHONY: setup up down demo test kills check conformance bench clean
PYTHON ?= python3
BIN := .venv/bin
VECTORS ?= tests/conformance/vectors

setup: .venv/installed
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# What a user installs: no development tools, in an environment of its own.
.venv-demo/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[embedded,cli]'
	touch $@

demo: .venv-demo/installed
	.venv-demo/bin/ombus demo

check: setup
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy && $(BIN)/pyright && $(BIN)/lint-imports
	$(BIN)/python -m ombus_schemas.publish --check

test: setup
	$(BIN)/pytest -q -ra

kills: setup
	KILLS=50 $(BIN)/pytest -q tests/cli/test_up.py

conformance: setup
	$(BIN)/python -m tests.conformance.runner $(VECTORS)

# Kafka, Redis, a Kafka UI and the workers, with Docker; without it: docs/guides/kafka-dev.md
COMPOSE := docker compose -f infra/compose/compose.yaml
up:
	$(COMPOSE) up --build --detach --wait --wait-timeout 300

down:
	$(COMPOSE) down $(if $(WIPE),--volumes)
