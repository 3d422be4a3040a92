# Two commands do all the set-up: `make demo` and `make test`. Both are quick when repeated.
# `make demo ARGS="--json"`: the last line of output is the JSON.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest
TAPS := tests/taps
DETECTION := tests/bench/detection
BROWSER := tests/browser
STACK := tests/stack tests/dashboards/test_live.py
DISTRIBUTED := tests/distributed tests/test_ddp.py tests/huggingface/test_two_ranks.py
TRAINING := $(wildcard tests/bench tests/demo tests/huggingface $(addprefix tests/test_,$(addsuffix .py,examples frameworks gentle_edges huggingface lightning lightning_loggers lightning_on_alert monitor reaction)))

# Two busy threads on a small machine cost minutes.
export OMP_NUM_THREADS ?= 1
MAKEFLAGS += --no-print-directory

.PHONY: demo stack test check format test-unit test-taps test-training test-detection test-distributed test-browser test-stack dashboards-sheet page-pictures clean

demo: .venv/ready
	@$(BIN)/stabmon demo $(ARGS)

stack: .venv/ready-to-test
	@$(BIN)/python -m tests.stack.show

# Two at a time, but for those that wait for other programs.
test: .venv/ready-to-test
	@$(MAKE) --jobs=2 --output-sync check test-unit test-taps test-training test-detection test-distributed
	@$(MAKE) test-browser test-stack

check: .venv/ready-to-test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: .venv/ready-to-test
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

test-unit: .venv/ready-to-test
	@$(PYTEST) tests $(addprefix --ignore=,$(TAPS) $(TRAINING) $(DISTRIBUTED) $(BROWSER) $(STACK)) $(ARGS)

test-taps: .venv/ready-to-test
	@$(PYTEST) $(TAPS) $(ARGS)

test-training: .venv/ready-to-test
	@$(PYTEST) $(TRAINING) $(addprefix --ignore=,$(DISTRIBUTED) $(DETECTION)) $(ARGS)

test-detection: .venv/ready-to-test
	@$(PYTEST) $(DETECTION) $(ARGS)

test-distributed: .venv/ready-to-test
	@$(PYTEST) $(DISTRIBUTED) $(ARGS)

test-browser: .venv/ready-to-test
	@$(PYTEST) $(BROWSER) $(ARGS)

test-stack: .venv/ready-to-test
	@$(PYTEST) $(STACK) $(ARGS)

# Every panel of the dashboards with what it is given, as pictures: needs the program prometheus.
dashboards-sheet: .venv/ready-to-test
	@$(BIN)/python -m tests.dashboards.sheet dashboards-sheet $(ARGS)

# The page of a healthy run, a stall, a blow-up and a broken one, for the docs; looked at before they are kept.
page-pictures: .venv/ready-to-test
	@$(BIN)/python -m tests.browser.pictures docs/pictures $(ARGS)

clean:
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("stabmon needs Python 3.11 or newer: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "Installing into .venv, about a minute the first time." >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP) --upgrade pip hatchling editables
	@$(PIP) --editable ".[torch]"
	@touch $@

.venv/ready-to-test: .venv/ready
	@$(PIP) --editable ".[huggingface]" --group dev
	@# Without its torchvision, each build of which fits one build of torch alone.
	@$(PIP) --no-deps timm
	@touch $@
