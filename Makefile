# `make setup` needs Python 3.11 or later with venv, and PyPI; everything else calls it first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test lint bench bench-peers plots soak mutate coverage-table ci-deps clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Five processes, a kill, a partition and a remerge, told as they happen, with the checker's verdict and Spark's report.
demo: setup
	@$(BIN)/ordercast demo

# The pipeline's tests have a process of their own: py4j's callbacks select(), which ends at 1,024 open files.
test: setup
	@$(BIN)/python -m pytest -q -n 2 --dist loadgroup --ignore tests/spark
	@$(BIN)/python -m pytest -q tests/spark

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Each prints JSON; the figures of record are in docs/performance.md and bench/results/.
# The first one counts work per message and fails when a change has made it 10 % worse.
bench: setup
	@$(BIN)/python bench/work.py
	@$(BIN)/python bench/engine.py
	@$(BIN)/python bench/simulator.py
	@$(BIN)/python bench/checker.py
	@$(BIN)/python bench/seal.py
	@$(BIN)/python bench/datagrams.py
	@$(BIN)/python bench/group.py

# Ours, the peers and the bare ring, in turns: the table of docs/performance.md. Needs root and `ordercast bench peers`.
bench-peers: setup
	@$(BIN)/python bench/acceptance.py

# The plots of docs/performance.md, from the data in bench/results, which bench/sweep.py, model.py and where.py made.
plots: setup
	@$(BIN)/python bench/plots.py

SEEDS ?= 0:20000
soak: setup
	@$(BIN)/ordercast sim --engine totem --seeds $(SEEDS)
	@$(BIN)/python -m tests.security.fuzz --packets 10000000
	@$(BIN)/python -m tests.chaos --minutes 30
	@$(BIN)/python -m tests.chaos --durable --minutes 10 --seconds 20

# Breaks the engines on purpose, in many ways, and shows that the simulator, the checker and the requirements notice.
mutate: setup
	@$(BIN)/python -m tests.mutation

# Which cells of Totem's state × event table seeds and scenarios reach.
coverage-table: setup
	@$(BIN)/python -m tests.table_coverage

# Debian packages for the tests on network-namespace hosts, which need root; without them those tests say that they skip.
ci-deps:
	@if [ "$$(id -u)" = 0 ] && ! { command -v ip && command -v nft; } >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iproute2 nftables >/dev/null; fi
	@# The peer whose runs are tested; where there is no compiler for its load, that test says that it is skipped.
	@if [ "$$(id -u)" = 0 ] && command -v gcc >/dev/null && ! command -v corosync >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq corosync libcpg-dev >/dev/null || \
		echo "Corosync cannot be installed here: its test will be skipped"; fi
	@# The browser in which reports are looked at: 113 MB, half a minute.
	@if [ "$$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		chromium fonts-dejavu-core >/dev/null || echo "Chromium cannot be installed here: its tests will be skipped"; fi

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
