# make bench: set up, run the quickstart sweep and draw its figure.   make test: set up, run the tests.
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3))
# TORCH=2.15.0: another PyTorch, in an environment of its own.
PINNED := $(shell sed -n 's/^torch==//p' constraints.txt)
TORCH ?= $(PINNED)
venv = $(if $(filter $(PINNED),$1),.venv,.venv-$1)
VENV ?= $(call venv,$(TORCH))
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip --disable-pip-version-check -q install --no-compile
# Modules are compiled when they are first imported: pip would compile 25,000 of them, one by one.
# Where this is set, each of the thousand processes that tests start would compile its own again.
unexport PYTHONDONTWRITEBYTECODE
READY := $(VENV)/.ready
TOOLS := $(VENV)/.tools

.PHONY: bench benchmarks figures leaderboard leaderboard-page test kernels tools matrix check links docs gpu gpu-bundle gpu-offline setup clean

setup: $(READY)

tools: $(TOOLS)

# torch goes first, by its exact pin: resolving it together with the rest may pick a larger build.
# torchvision declares no build of torch that every platform has, so it goes in without dependencies.
CONSTRAINTS := $(VENV)/constraints.txt
# What is not taken from there: another PyTorch asks for a setuptools of its own (2.11: an older one).
OWN := (torch|torchvision$(if $(filter-out $(PINNED),$(TORCH)),|setuptools))
# Its release for another PyTorch stands in the table of those that we run with.
VISION = if [ $(TORCH) = $(PINNED) ]; then sed -n 's/^torchvision==//p' constraints.txt; else \
  sed -n 's/^    "$(basename $(TORCH))": TorchRelease("\([0-9.]*\)".*/\1.*/p' tracing/releases.py; fi
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ grep -Ev '^$(OWN)==' constraints.txt; echo "torch==$(TORCH)"; } > $(CONSTRAINTS)
	$(INSTALL) "torch==$(TORCH)"
	$(INSTALL) --no-deps "torchvision==$$($(VISION))"
	$(INSTALL) -c $(CONSTRAINTS) -e .
	touch $@

# What only tests and linters need: pytest, ruff, mypy, the launchers. The package itself, installed
# already, is left alone: its kernels may be compiled (make kernels) while these go in.
EXTRAS = import sys, tomllib; has = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(*(need for name in sys.argv[1:] for need in has["optional-dependencies"][name]), sep="\n")
INSTALL_EXTRAS = $(BIN)/python -c '$(EXTRAS)' $1 > $@.txt && $(INSTALL) -c $(CONSTRAINTS) -r $@.txt
$(TOOLS): $(READY)
	$(call INSTALL_EXTRAS,dev models moccasin sac joblib ray slurm)
	touch $@

bench: $(READY)
	$(BIN)/rematbench -m experiment=quickstart hydra.sweep.dir=runs/quickstart
	$(BIN)/rematbench-report runs/quickstart --figure overhead --out runs/quickstart/report

# Every figure and table of the papers, at PROFILE quick (two cores), full or gpu: two at a time,
# those that take longest first.
PROFILE ?= quick
FIGURES ?= monet_table7 monet_table1 simrd_distance checkmate_table2 \
  $(addprefix checkmate_,fig5 fig6) simrd_fig4 monet_fig3 checkmate_appendix_a monet_table6 \
  checkmate_fig3 $(addprefix simrd_fig,3 2) monet_fig6 $(addprefix simrd_fig,5 11) checkmate_fig7 \
  simrd_fig12 feng_huang_table2 checkmate_fig1 $(addprefix simrd_fig,13 14 6 7 8 9 10) \
  checkmate_table1 $(addprefix monet_,fig7 fig4 fig5 fig8) \
  $(addprefix joins_,table2 fig9 table1 fig8 fig10 fig6) feng_huang_table1 \
  $(addprefix monet_,table2 table3 table5)
SMALL_LSTM := model.options.vocabulary=100 model.options.hidden=100
LOGS := runs/figures/logs
RECORDED := $(addprefix $(LOGS)/,resnet32.log.gz densenet_bc.log.gz unet.log.gz lstm_lm.log.gz tree_lstm.log.gz)

figures: $(RECORDED)  # timed steps: nothing runs beside them
	$(MAKE) -j2 $(addprefix figure-,$(FIGURES))
	$(BIN)/rematbench-report runs/figures --all --out runs/figures/report

figure-checkmate_fig6: $(READY)
	$(BIN)/rematbench-max-batch -m experiment=checkmate_fig6 profile=$(PROFILE)

figure-%: $(RECORDED)
	own=; if grep -q '^profile:' conf/experiment/$*.yaml; then own="profile=$(PROFILE)"; fi; \
	if grep -q '^logs:' conf/experiment/$*.yaml; then own="$$own logs=$(LOGS)"; fi; \
	$(BIN)/rematbench -m experiment=$* hydra.sweep.dir=runs/figures/$* $$own

# The simrd paper's models at sizes for two cores, as event logs.
RECORD = $(BIN)/rematbench-record model=$(basename $(basename $(@F))) out=$@
$(LOGS)/resnet32.log.gz: | $(READY)
	$(RECORD) batch_size=32
$(LOGS)/densenet_bc.log.gz: | $(READY)
	$(RECORD) batch_size=32
$(LOGS)/unet.log.gz: | $(READY)
	$(RECORD) batch_size=1 resolution=256 model.options.base_channels=32
$(LOGS)/lstm_lm.log.gz: | $(READY)
	$(RECORD) batch_size=10 $(SMALL_LSTM) model.options.sequence_length=32
$(LOGS)/tree_lstm.log.gz: | $(READY)
	$(RECORD) batch_size=32 $(SMALL_LSTM) model.options.embedding=100

# Our own speed and exactness, beside eager training and the numbers that were asked for: all, going
# on where it was stopped (its last, the papers' figures, takes some 40 minutes), or one by its name.
# It needs a commit; docs/benchmarks.md is made from the records.
benchmarks: $(TOOLS) links
	-$(MAKE) -s $(DOCS)
	$(BIN)/python -m benchmarks

# A part of the leaderboard's full profile (PART=3/46: the third of its networks, some ten minutes
# on two cores): its rows, then the page and the picture of all parts that are there.
PART ?= 1/46
BOARD := runs/reference/leaderboard
WORK := runs/leaderboard/full
leaderboard: $(TOOLS)
	$(BIN)/rematbench -m experiment=leaderboard profile=full part=$(PART) launch=joblib hydra.sweep.dir=$(WORK)/$(PART)
	$(BIN)/rematbench-report $(WORK)/$(PART) --out $(WORK)/report
	gzip -9nc $(WORK)/report/leaderboard.csv > $(BOARD)/full-$$(printf %02d $(firstword $(subst /, ,$(PART)))).csv.gz
	$(MAKE) leaderboard-page

# Plans that ran, on a CPU and on each accelerator that the suite was run on (make gpu): those whose
# environment tells of memory of its own.
REFERENCE := runs/reference
SUITES = $(patsubst %/environment.json,%/leaderboard.csv,$(shell grep -ls '"memory_bytes"' $(REFERENCE)/*/environment.json))

# Of the rows that are there: both pages of docs/, their pictures, README's table, and the figures of
# the papers' pages. The rows of the full profile are older than what a row must say, and are asked
# for (--lacking): see the page's head.
QUOTE = $(BIN)/python -m rematbench.report.leaderboard.quote
leaderboard-page: $(READY)
	$(QUOTE) '$(BOARD)/full-*.csv.gz' --lacking --executed $(BOARD)/measured.csv.gz $(SUITES) --pictures \
	  --readme README.md --out docs/leaderboard.md
	$(QUOTE) $(BOARD)/quick.csv.gz --title "The leaderboard's quick profile" --pictures \
	  --out docs/leaderboard-quick.md
	$(BIN)/python -m rematbench.instances.paper_figures

benchmark-%: $(TOOLS) links
	-$(MAKE) -s $(DOCS)
	$(BIN)/python -m benchmarks --again $*

# Kernels that numba compiles once on a machine, two and a half minutes of a processor: tests that
# run side by side would compile them each.
WARM_UP := import sys; from rematbench.engines.warm_up import warm_up; \
  from rematbench.strategies.registry import make; [warm_up(make(name)) for name in sys.argv[1:]]
KERNELS := $(VENV)/.kernels-intervals $(VENV)/.kernels-chains
$(VENV)/.kernels-intervals: NAMES := anytime anytime_joint hybrid
$(VENV)/.kernels-chains: NAMES := chain_dp equiv_chain join_dp kusumoto checkmate_ilp
$(KERNELS): $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -P -c '$(WARM_UP)' $(NAMES)
	touch $@
kernels: $(KERNELS)

# With the site's, where mkdocs can be had.
test: $(TOOLS)
	-$(MAKE) -s $(DOCS)
	$(MAKE) -s -j2 kernels
	$(BIN)/python -m pytest -q -n 3

# Tests of tracing, validator and training on the oldest PyTorch, the pinned one and the newest.
MATRIX ?= 2.11.0 $(PINNED) 2.15.0
matrix: $(addprefix matrix-,$(MATRIX))
	PYTEST_ADDOPTS="-n 2" $(BIN)/python -m benchmarks.versions \
	  $(foreach torch,$(MATRIX),$(abspath $(call venv,$(torch)))/bin/python)

matrix-%:
	$(MAKE) tools TORCH=$*

check: $(TOOLS) links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/rematbench-instances check
	$(BIN)/rematbench-instances check library=instances/two-memories
	cd build/links && $(abspath $(BIN))/mypy --config-file ../../pyproject.toml --strict -p rematbench -m hydra_plugins.rematbench_sweeper

# The package as it is installed, in links to the folders: for type checkers and editors.
ROOMS = $(shell sed -n 's/^"rematbench\.[a-z]*" = "\(.*\)"/\1/p' pyproject.toml)
# Its sub-packages that lie in its own folder.
INNER = $(patsubst %/__init__.py,%,$(wildcard rematbench/*/__init__.py))
links:
	rm -rf build/links && mkdir -p build/links/rematbench
	ln -s $(addprefix ../../../,$(wildcard rematbench/*.py*) $(INNER) $(ROOMS)) build/links/rematbench/
	ln -s ../../hydra_plugins build/links/

# The site, in build/site: from docs/, docstrings, the configuration and committed results.
DOCS := $(VENV)/.docs
$(DOCS): $(READY)
	$(call INSTALL_EXTRAS,docs)
	touch $@

docs: $(DOCS) links
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "the site: build/site/index.html"

# On a machine with a CUDA device: its tests, then the suite; under eight minutes, rows as they come.
# SUITE: more of its overrides. Where Python has what it needs: make gpu TOOLS= BIN=/path/to/its/bin
GPU_TESTS = $(shell grep -rlE "mark\.gpu|^from devices import" tests --include="test_*.py")
gpu: $(TOOLS)
	began=$$(date +%s); status=0; \
	timeout 200 $(BIN)/python -m pytest -q -m gpu -n 4 $(GPU_TESTS) || status=$$?; \
	$(BIN)/python -m rematbench.cli.suite seconds=$$((450 + began - $$(date +%s))) $(SUITE) && exit $$status

# Wheels for a machine without network: those that it lacks, besides PyTorch and what this brings.
BUNDLE := build/gpu-bundle
HAS ?= torch torchvision jinja2 markupsafe networkx numpy pillow
gpu-bundle: $(TOOLS)
	$(BIN)/python -m benchmarks.gpu_bundle $(BUNDLE) --python 3.12 --has $(HAS)

# There, with the checkout and the bundle beside it: into a folder, and nothing of the machine changes.
gpu-offline:
	python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target build/site $(BUNDLE)/*.whl
	REMATBENCH_COMMIT=$$(cat $(BUNDLE)/COMMIT) PYTHONSAFEPATH=1 PYTHONPATH=$(abspath build/site) \
	  $(MAKE) gpu TOOLS= BIN=$$(dirname $$(command -v python3)) SUITE="$(SUITE)"

clean:
	rm -rf .venv .venv-* build *.egg-info
