# One line each; `make help` lists them. Everything runs from .venv, which `make setup` makes from nothing.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 2000
FLEETS ?= 200
TRIALS ?= 10
STORMS ?= 20
HOURS ?= 1

.PHONY: help setup long run demo fleet faults check test quick suite compiled compile wheel sim traces fleetsim storms hostile soak bench lock reference screenshots docs clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: .venv/.ready  ## make .venv with everything the tests need, too

# Many Pythons are started here; each would compile the whole package if it may not keep the result.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
# uv installs in seconds what takes pip a minute. Where pip is told of an index of its own, or uv cannot, pip does it.
OWN_INDEX := test -n "$$PIP_INDEX_URL" || $(BIN)/python -m pip config get global.index-url >/dev/null 2>&1
INSTALL = (! ($(OWN_INDEX)) && $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r $(1)) || $(PIP) --require-hashes -r $(1)
.venv/.run: pyproject.toml requirements.lock requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit("Forebay needs Python 3.11 or newer; try: make setup PYTHON=python3.11") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r requirements-uv.lock || true
	@echo "installing requirements.lock"; $(call INSTALL,requirements.lock)
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# The headless shell needs two thirds of the CPU that Chromium itself needs; Debian has it.
BROWSER := (command -v chromium || command -v chromium-browser || command -v google-chrome) >/dev/null
APT := command -v apt-get >/dev/null && test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends
.venv/.ready: .venv/.run requirements-dev.lock tests/real/node/package-lock.json
	@echo "installing requirements-dev.lock"; $(call INSTALL,requirements-dev.lock)
	@if command -v npm >/dev/null; then npm ci --silent --no-audit --no-fund --prefix tests/real/node; fi
	@command -v chromium-headless-shell >/dev/null || ($(APT) chromium-headless-shell) >/dev/null 2>&1 || $(BROWSER) || ($(APT) chromium >/dev/null) \
	  || echo "the tests of the page need Chromium: install the package 'chromium-headless-shell' or 'chromium', or Google Chrome"
	@command -v haproxy >/dev/null || test -x /usr/sbin/haproxy || ($(APT) haproxy >/dev/null) \
	  || echo "the tests of a rolling restart need HAProxy: install the package 'haproxy'"
	@touch $@

# `exec`: make hands a SIGTERM to its own child only, and a shell between would end and leave the gateway behind.
run: .venv/.run  ## start the gateway, with a small real model if you run none: make run [ARGS="--port 7801"]
	@exec env PYTHONPATH=$$($(BIN)/python tools/compile.py --fresh) $(BIN)/forebay serve $(ARGS)  # compiled, after make compile

demo: .venv/.run  ## watch a queue at work: simulated nodes, scripted users, captions on the page
	@exec $(BIN)/forebay demo $(ARGS)

fleet: setup  ## several gateways on one queue, on this machine: Valkey, PostgreSQL, guards, HAProxy if it is there; make fleet [ARGS="--gateways 3"]
	@$(BIN)/python -m harness.fleet --haproxy-if-there deploy/haproxy.cfg $(ARGS)

faults: setup  ## seeded faults against real gateways, watched from outside: make faults [TRIALS=10] [SEED=n to replay one]
	@$(BIN)/python -m harness.fleet.trials $(if $(SEED),--seed $(SEED),--seeds $(TRIALS)) $(ARGS)

long: setup  ## the tests that `make test` leaves out because they take long
	$(BIN)/pytest -q --workers 2 --long -m long

check: setup  ## lint, types, imports, tidiness
	$(BIN)/ruff format --check --quiet . || (echo "run: .venv/bin/ruff format ." && exit 1)
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/pytest -q -p no:cacheprovider tests/test_tidy.py

test: setup  ## set up, check, and run every test
	@$(MAKE) --no-print-directory -j 3 check suite compiled  # of 2 cores: many tests wait for programs

quick: setup  ## in a minute: lint; the core, the wire, the relay, sessions, jobs on SQLite
	@$(BIN)/ruff format --check --quiet . || (echo "run: .venv/bin/ruff format ." && exit 1)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/pytest -q --workers 3 -m "not postgres" tests/core tests/wire tests/relay tests/sessions tests/jobs

# What fails beside five others, mypy and a compiler on two cores is run once more by itself, and named.
SUITE := $(BIN)/pytest -q -o cache_dir=.pytest_cache/suite
AGAIN := $(SUITE) --last-failed --last-failed-no-failures none --exitfirst --again
suite: setup
	@$(SUITE) --workers 6 --ignore tests/test_tidy.py || { test $$? = 1 && $(AGAIN); }

# Without the tests of a module that is never compiled.
HOT := tests/test_build.py tests/wire tests/relay tests/gateway/hot tests/gateway/faults --ignore tests/relay/test_members.py
compiled: setup  ## the tests of the hot path once more, compiled (without the C optimiser: that is quicker)
	@if ! command -v $${CC:-cc} >/dev/null; then echo "no C compiler: the compiled build is not tested"; else \
	  $(BIN)/python tools/compile.py --if-changed --unoptimised && \
	  PYTHONPATH=$(CURDIR)/build/compiled-unoptimised $(BIN)/pytest -q --workers 2 --compiled $(HOT); fi

compile: setup  ## compile the hot path with mypyc into build/compiled (needs a C compiler); make run uses it
	$(BIN)/python tools/compile.py --if-changed

wheel: setup  ## build dist/*.whl, with the hot path compiled where a C compiler is there
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist .

sim: setup  ## run seeded simulations: make sim [SEEDS=2000] [SEED=n to replay one]
	$(BIN)/python -m forebay.testing.simulation $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

TRACES ?= traces
traces: setup  ## replay the traces in a folder and print how near the promised waits were: make traces TRACES=folder
	$(BIN)/python -m harness.traces $(TRACES) $(ARGS)

fleetsim: setup  ## simulate gateways that share one queue, with faults: make fleetsim [FLEETS=200] [SEED=n to replay one]
	$(BIN)/python -m harness.fleet_simulation $(if $(SEED),--seed $(SEED),--seeds $(FLEETS))

storms: setup  ## kill, freeze and crash three gateways and their PostgreSQL under load: make storms [STORMS=20]
	$(BIN)/pytest -q tests/end_to_end/test_job_fleet.py -k faults_47 --storms $(STORMS)

soak: setup  ## hours of mixed load and faults; fails if memory, descriptors, slots or tasks grow: make soak [HOURS=1]
	$(BIN)/python -m bench.soak --hours $(HOURS) $(ARGS)

hostile: setup  ## clients and nodes that do anything to HTTP, new seeds until one fails: make hostile [HOURS=1] [SEED=n to replay one]
	$(BIN)/python -m tests.hostile $(if $(SEED),--seed $(SEED),--hours $(HOURS)) $(ARGS)

bench: setup  ## measure the core against heapq, the jobs, the guard, the fleet, and the gateway against HAProxy and its peers
	$(BIN)/python -m bench.core
	$(BIN)/python -m bench.jobs
	$(BIN)/python -m bench.guard
	$(BIN)/python -m bench.fleet
	$(BIN)/python -m bench.gateway $(ARGS)

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate --upgrade
EXTRAS := --extra embedded --extra gpu --extra otel --extra postgres --extra redis --extra tui --extra build
lock: setup  ## resolve the lock files anew from pyproject.toml
	$(BIN)/$(COMPILE) $(EXTRAS) -o requirements.lock pyproject.toml
	$(BIN)/$(COMPILE) $(EXTRAS) --extra docs --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml
	echo uv | $(BIN)/$(COMPILE) -c requirements-dev.lock -o requirements-uv.lock -
	printf 'mypy\nsetuptools\n' | $(BIN)/$(COMPILE) -c requirements-dev.lock -o requirements-build.lock -

reference: setup  ## write the reference pages, diagrams, example file, schemas and dashboard anew from the code
	$(BIN)/python -m tools.reference

docs: setup  ## build the documentation as a site into build/site; it opens from the file system
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

screenshots: setup  ## take the pictures of the docs anew from the running demo
	$(BIN)/python docs/screenshots.py

clean:  ## remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
