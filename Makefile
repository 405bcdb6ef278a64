# Everything is fetched into .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
# Two steps: what Penstock needs, and what tests and checks need in addition.
RUN_STAMP := .venv/.ready-to-run
DEV_STAMP := .venv/.ready-to-test
TEST_PROCESSES ?= 4

.PHONY: run demo test test-arm64 check soak mutants simulate fuzz audit-dependencies bench bench-compare site pictures format setup

run: $(RUN_STAMP)
	$(BIN)/penstock up --sample

demo: $(RUN_STAMP)
	$(BIN)/penstock up --demo

# Four processes on two cores: a test with real processes waits half of its time.
test: setup
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --no-loadscope-reorder -m "not soak"

# As root, on Debian, with debootstrap and qemu-user-static.
test-arm64: setup
	tests/arm64.sh tests/logbuffer tests/handover --timeout=1200 -m "not aeron and not soak"

soak: setup
	$(BIN)/python -m pytest -m soak
	$(BIN)/python -m tests.mutants $(ROOMS)

# Weakens each tagged safeguard; ROOMS=log/store limits it to a folder. Takes hours.
mutants: setup
	$(BIN)/python -m tests.mutants $(ROOMS)

# A seed is one run; FIRST=N begins with seed N. A failing seed is shrunk and printed as a test. LANDING=1: the landing;
# FORWARDING=1: with forwarders.
simulate: setup
	$(BIN)/python -m penstock.testing.simulation --seeds $(or $(SEEDS),100) --first $(or $(FIRST),0) $(if $(LANDING),--landing) $(if $(FORWARDING),--forwarding) $(if $(GROUPS),--groups) $(if $(PRODUCERS),--producers) $(if $(SOCKETS),--sockets)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fuzz: setup
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder -m "hypothesis and not soak" --hypothesis-profile=fuzz

audit-dependencies: setup
	test -x .venv/audit/bin/pip-audit || ($(PYTHON) -m venv .venv/audit && .venv/audit/bin/pip install --quiet pip-audit)
	.venv/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

# WITH=rsyslog,slogd,nats,kafka,collector measures these beside Penstock, alone; results are kept in bench/results.
bench: setup
	$(BIN)/python -m bench $(PARTS) $(if $(WITH),--with $(WITH))

bench-compare: setup
	$(BIN)/python -m bench.compare $(A) $(B)

site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pictures: setup
	$(BIN)/python -m docsite.pictures

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(DEV_STAMP)

RUN_EXTRAS := spark,kafka,console,java,otel
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

$(RUN_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Penstock needs python3 3.11 to 3.13")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "fetching what Penstock needs into .venv (some minutes, once)"
	$(INSTALL) --editable '.[$(RUN_EXTRAS)]'
	touch $(RUN_STAMP)

$(DEV_STAMP): $(RUN_STAMP)
	@echo "fetching what tests and checks need into .venv (some minutes, once)"
	$(INSTALL) --editable '.[$(RUN_EXTRAS),dev]'
	touch $(DEV_STAMP)
