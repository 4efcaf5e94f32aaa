# Everything that a checkout needs, from a bare machine: each target makes its own environment first.
# Another interpreter:  make PYTHON=python3.12 test          Arguments for pytest:  make test ARGS="-k jpeg"

PYTHON ?= python3
ARGS ?=
VENV := .venv
TORCH := torch==2.13.0
EXTRA := dev
PACKAGE := --editable .
PEERS := .peers
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv demo test check lint coverage oldest newest frameworks docs gpu bench peers soak dist clean same-python
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(VENV)/.dev ## Make .venv with fastload (editable) and every tool that the targets below use

demo: $(VENV)/.demo ## Pack a small made-up dataset, load it, show what it gained
	$(BIN)/fastload demo $(ARGS)

test: $(VENV)/.dev ## Run the tests, two at a time; skipped ones are listed with what they lack
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: lint test ## Run the linters, then the tests: what a change has to pass

lint: $(VENV)/.dev ## Check style, format, types and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

coverage: $(VENV)/.dev ## Run the tests, and list the lines that none of them reaches
	$(call install,coverage)
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report= $(ARGS)
	$(BIN)/coverage report --show-missing

# What depends on other packages' versions: torch's private parts, the containers, NumPy's and OpenCV's behaviour.
VERSIONED := tests/loader tests/datasets tests/packing tests/shards tests/remote

oldest: ## Run the tests of loader, datasets, packing, shards and URLs with the oldest supported releases (.venv-oldest)
	PIP_CONSTRAINT=tests/oldest.txt $(MAKE) VENV=.venv-oldest TORCH=torch EXTRA=test test ARGS="$(VERSIONED) $(ARGS)"

newest: ## Run the same tests with the newest releases of everything (.venv-newest)
	PIP_UPGRADE=1 PIP_UPGRADE_STRATEGY=eager $(MAKE) VENV=.venv-newest TORCH=torch test ARGS="$(VERSIONED) $(ARGS)"

frameworks: $(VENV)/.frameworks ## Add Lightning, timm and others, without which 'make test' skips the tests that they are for

docs: $(VENV)/.docs ## Build the documentation's site in build/docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env docs build/docs
	@echo "build/docs/index.html"

gpu: $(VENV)/.dev ## Run all that needs a CUDA device, and record it in benchmarks/results/gpu.json
	$(BIN)/python benchmarks/check_gpu.py $(ARGS)

bench: $(VENV)/.dev ## Run every benchmark of fastload (benchmarks/bench_*.py)
	@set -e; for file in $(sort $(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$file $(ARGS); done

PEER_NAMES := ffcv dali webdataset litdata streaming grain spdl

peers: $(PEER_NAMES:%=$(PEERS)/%/.made) ## Make the peers' environments, for comparing

$(PEERS)/%/.made: benchmarks/peers/install.py benchmarks/peers/%.txt
	$(PYTHON) benchmarks/peers/install.py $(PEERS)/$*
	@touch $@

soak: $(VENV)/.dev ## Run the long tests that 'make test' leaves out
	$(BIN)/python -m pytest -m soak --timeout=0 -o faulthandler_timeout=0 $(ARGS)

dist: $(VENV)/.dev ## Build and check sdist and wheel, install the wheel alone (.venv-dist), and take the first steps with it
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv --clear .venv-dist
	$(MAKE) VENV=.venv-dist PACKAGE=$$(echo dist/*.whl) installed
	cd dist && PATH=$(CURDIR)/.venv-dist/bin:$$PATH python - < ../tests/first_steps.py

installed: | $(BIN)/python # what a user installs, without extras
	$(call install)

clean: ## Remove caches and build outputs; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find fastload tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# --- The environment: a stamp for what users need, and one for what developers need besides. -------------

# An installed torch is kept. Otherwise 2.13.0 is installed, because pip takes a CPU build of it ("2.13.0+cpu") over the CUDA one
# wherever it is offered both; else whatever fits. opencv-python wants libGL, which bare machines lack;
# its headless build is the same cv2 without windows. torchvision is what tests compare with; --no-deps,
# because it would bring another torch.
TORCH_FITS := from importlib.metadata import version; \
	assert tuple(map(int, version('torch').split('.')[:2])) >= (2, 6)
TORCHVISION := from importlib.metadata import version; \
	major, minor = map(int, version('torch').split('.')[:2]); print(f'torchvision==0.{minor + 15}.*')

define install
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	@$(BIN)/python -c "$(TORCH_FITS)" 2>/dev/null \
	|| { echo "Installing torch; where only CUDA builds are offered this takes gigabytes:" \
	     "PIP_EXTRA_INDEX_URL can name an index of CPU builds."; \
	     $(PIP) install $(TORCH) || $(PIP) install 'torch>=2.6'; }
	$(PIP) install --quiet $(PACKAGE)$(if $(1),'[$(1)]')
	@$(BIN)/python -c 'import cv2' 2>/dev/null \
	|| { echo "opencv-python cannot be imported here (it needs libGL.so.1; on Debian: libgl1 libglib2.0-0):" \
	     "taking opencv-python-headless in its place."; \
	     $(PIP) uninstall --quiet --yes opencv-python && \
	     $(PIP) install --quiet --force-reinstall --no-deps opencv-python-headless && \
	     $(BIN)/python -c 'import cv2'; }
endef

$(VENV)/.demo: pyproject.toml Makefile | $(BIN)/python same-python
	$(call install,demo)
	@touch $@

$(VENV)/.dev: pyproject.toml Makefile | $(BIN)/python same-python
	$(call install,$(EXTRA))
	$(PIP) install --quiet --no-deps "$$($(BIN)/python -c "$(TORCHVISION)")" \
	|| $(PIP) install --quiet --no-deps torchvision # before the release that belongs to this torch is out
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: $(VENV)/.dev
	$(call install,docs)
	@touch $@

# timm and Ultralytics come without their dependencies, which would bring another torch and another OpenCV; what the
# tests use of them needs torchvision, which is there, and what the extra names.
$(VENV)/.frameworks: $(VENV)/.dev
	$(call install,frameworks)
	$(PIP) install --quiet --no-deps 'timm>=1.0.20' 'ultralytics>=8.4'
	@touch $@

$(BIN)/python:
	@test ! -e $(VENV)/pyvenv.cfg \
	|| { echo "$(VENV) was made by a Python that is no longer there: rm -r $(VENV), then again."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	|| { echo "fastload needs Python 3.10 or newer: make PYTHON=python3.12, for one."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	|| { echo "$(PYTHON) cannot make virtual environments: install its venv module" \
	     "(Debian, Ubuntu: apt-get install python3-venv), or make PYTHON=another."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# A PYTHON that was asked for and is not the one in .venv is refused rather than ignored.
same-python: | $(BIN)/python
ifneq ($(filter command environment,$(origin PYTHON)),)
	@said=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	has=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	test "$$said" = "$$has" \
	|| { echo "$(VENV) holds Python $$has, and PYTHON=$(PYTHON) is $$said: rm -r $(VENV), then again."; exit 1; }
endif
