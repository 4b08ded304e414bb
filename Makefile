# `make help` lists what there is. Everything runs in .venv, which the first target makes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow browser lint format hooks docs dist image audit bench bench-peers bench-gpu mutants clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedsac needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

setup: $(READY) ## the virtual environment and everything the project needs

run: $(READY) ## ten unequal clients train together on the embedded digits: who contributed, who was paid
	$(BIN)/fedsac run

# A process for each core, each with one thread: the fast tests' models are so small that threads would only wait for each
# other. A file's tests stay together, since they share what is made once.
test: lint ## the checks and the fast tests (under 10 minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile

test-slow: $(READY) browser docs ## kills, real processes, real data, a real browser (at most 40 minutes)
	$(BIN)/pytest -m slow

# Debian's, for the tests that look at a page; where it cannot be installed, they are skipped and say so.
browser: ## a headless Chromium for test-slow, where there is none
	@{ command -v chromium && command -v chromedriver && test -d /usr/share/fonts/truetype/droid; } >/dev/null || { \
	  ROOT=$$(test "$$(id -u)" = 0 || echo "sudo -n"); \
	  $$ROOT apt-get update -qq && $$ROOT env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium chromium-driver \
	      fonts-dejavu-core fonts-droid-fallback >/dev/null; \
	} || echo "chromium, chromedriver and fonts could not be installed with apt-get: tests that need them will be skipped"

lint: $(READY) ## ruff, mypy, and which package may import which
	$(BIN)/ruff check src tests benchmarks scripts examples
	$(BIN)/ruff format --check src tests benchmarks scripts examples
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY) ## let ruff mend what it can
	$(BIN)/ruff check --fix src tests benchmarks scripts examples
	$(BIN)/ruff format src tests benchmarks scripts examples

hooks: $(READY) ## let git check the same before each commit
	$(BIN)/pre-commit install

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	@touch $(DOCS_READY)

# The variable silences the theme's advertisement of its successor. Not --quiet: then --strict would count no warnings.
docs: $(DOCS_READY) ## the documentation site in site/, every link checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: $(READY) ## sdist and wheel in dist/, the wheel tried in an empty environment, and its SBOM (a few minutes)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	scripts/try_wheel.sh $(BIN)/python dist/*.whl
	$(BIN)/python scripts/sbom.py dist/*.whl

# BUILD is for buildah, as in BUILD="--volume /etc/pip.conf:/etc/pip.conf:ro" where pip's index is one of your own.
image: ## a container image on a base of Debian's packages, no registry asked, and a federation in it (root; 10 minutes)
	docs/containers/base.sh
	buildah build --file docs/containers/Containerfile --tag fedsac $(BUILD) .
	scripts/try_image.sh

# pip-audit in an environment of its own: it wants other versions than ours of what it shares with us.
audit: $(READY) ## known vulnerabilities of what is installed; a line where the service cannot be reached
	$(BIN)/python scripts/audit.py .bench/audit

bench: $(READY) ## speed against one-by-one training and against this machine's limit (minutes)
	$(BIN)/python -m benchmarks

# Nothing is installed: a GPU's machine brings its own torch. With CIFAR-10 at hand (FEDSAC_DATA) precisions are tried on it.
bench-gpu: ## the same on a CUDA device, with the python named: make bench-gpu PYTHON=...
	PYTHONPATH=src $(PYTHON) -m benchmarks.gpu

bench-peers: $(READY) ## a round of FedAvg against Flower, FLGo and pfl, which it installs below .bench (a quarter of an hour)
	$(BIN)/python -m benchmarks peers

# mutmut for its operators; into a folder of its own, which comes last on the path.
mutants: $(READY) ## how many small changes of the source some test notices (hours; ROOMS="guard core" for some)
	@test -d .bench/mutants/packages || $(BIN)/python -m pip install --quiet --target .bench/mutants/packages mutmut==3.8.0
	$(BIN)/python -m benchmarks.mutants $(ROOMS)

clean: ## remove what make made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist site test-artefacts .bench
