# make bench: set up, run the quickstart sweep and draw its figure.   make test: set up, run the tests.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3))
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
READY := $(VENV)/.ready

.PHONY: bench benchmarks test check gpu setup clean

setup: $(READY)

# torch goes first, by its exact pin: resolving it together with the rest may pick a larger build.
# torchvision declares no build of torch that every platform has, so it goes in without dependencies.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install "$$(grep '^torch==' constraints.txt)"
	$(PIP) install --no-deps "$$(grep '^torchvision==' constraints.txt)"
	$(PIP) install -c constraints.txt -e ".[dev,joblib]"
	touch $@

bench: $(READY)
	$(BIN)/rematbench -m experiment=quickstart hydra.sweep.dir=runs/quickstart
	$(BIN)/rematbench-report runs/quickstart --figure overhead --out runs/quickstart/report

# Our own speed and exactness, beside eager training (up to an hour; each runs by itself, too).
benchmarks: $(READY)
	$(BIN)/python -m benchmarks.spine
	$(BIN)/python -m benchmarks.planners
	$(BIN)/python -m benchmarks.dtr
	$(BIN)/python -m benchmarks.online
	$(BIN)/python -m benchmarks.checkmate

test: $(READY)
	$(BIN)/python -m pytest -q -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict graphs

gpu: $(READY)
	$(BIN)/python -m pytest -q -m gpu

clean:
	rm -rf $(VENV) build *.egg-info
