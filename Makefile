# Everything runs on CPU from .venv, which plain pip fills; `make test` on a fresh machine does what CI does.
#
#   make test          environment, lint, type check, the quick tests
#   make test-slow     the other tests: families, checkpoints, hosts, meshes, kills, programs that are run, wheels
#   make test-all      both
#   make demo          the package alone in another venv, then `miron-jax eval` with no flags
#   make package       wheel and sdist, each installed and used in an environment of its own
#   make real          SmolLM2-135M against torch on a few real CORE and Gauntlet items (about five minutes on two cores)
#   make parity        SmolLM2-135M and Gemma-3-270M against torch on many
#   make tpu           the engine's programs, compiled by libtpu for TPUs that are not here, in another venv
#   make docs          docs/_build/html, without a network; a warning is an error
#   make bench         this engine beside torch and lm-eval
#   make test-bare     the tests without torch, in another venv: make test-bare PYTHON=python3.12 BARE_FLAGS="-k forward"

PYTHON ?= python3
MIRON_MODELS ?= $(HOME)/.cache/miron_jax/models
SHARED ?= ../shared
BUNDLE := $(SHARED)/data/eval_bundle
VENV := .venv
BARE := .venv-bare
PLAIN := .venv-plain
PACKAGED := .venv-packaged
TPU := .venv-tpu
RUN := $(VENV)/bin/python
GAUNTLET = $(RUN) benchmarks/parity_gauntlet.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE) \
	--yamls=$(SHARED)/data/gauntlet_v0_1

WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
# Compiling is most of what the slow tests do, and takes a third of the time so (jaxlib 0.10.2).  The quick tests, the real
# model and the newest Python run what users run.
FAST_COMPILER := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false

export MIRON_MODELS
export TRANSFORMERS_VERBOSITY ?= error

.PHONY: docs package venv install lint test test-slow test-long test-all test-bare demo real parity bench tpu tpu-long

venv: $(VENV)/bin/pip
install: $(VENV)/.installed

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# torch goes first and pinned: a resolver that is free to choose takes a build for a GPU from the index.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --upgrade "setuptools>=77" torch==2.13.0
	$(VENV)/bin/pip install --quiet -e ".[test,docs]"
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet -e ".[test,bench]"
	touch $@

$(BARE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BARE)
	$(BARE)/bin/pip install --quiet --upgrade "setuptools>=77" build hypothesis pytest pytest-xdist
	$(BARE)/bin/pip install --quiet -e .
	touch $@

$(TPU)/.installed: pyproject.toml
	$(PYTHON) -m venv $(TPU)
	$(TPU)/bin/pip install --quiet --upgrade "setuptools>=77" hypothesis pytest pytest-xdist
	$(TPU)/bin/pip install --quiet -e ".[tpu]"
	touch $@

$(PLAIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(PLAIN)
	$(PLAIN)/bin/pip install --quiet --upgrade "setuptools>=77"
	$(PLAIN)/bin/pip install --quiet -e .
	touch $@

demo: $(PLAIN)/.installed
	$(PLAIN)/bin/miron-jax eval

# As from an index: the wheel, then the sdist, in an environment and a folder that know nothing of this checkout.
package: install
	rm -rf dist $(PACKAGED)
	$(VENV)/bin/python -m build --quiet --outdir dist
	$(PYTHON) -m venv $(PACKAGED)
	mkdir $(PACKAGED)/elsewhere
	$(PACKAGED)/bin/pip install --quiet dist/*.whl
	cd $(PACKAGED)/elsewhere && ../bin/miron-jax eval --limit=2 --quiet && ../bin/miron-jax report miron-results --html=report.html
	$(PACKAGED)/bin/pip uninstall --quiet --yes miron-jax
	$(PACKAGED)/bin/pip install --quiet --no-deps dist/*.tar.gz
	cd $(PACKAGED)/elsewhere && ../bin/miron-jax --version && ../bin/miron-jax tasks --json=tasks.json

lint: install
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/basedpyright --pythonpath $(RUN)

test: lint
	$(RUN) -m pytest $(WORKERS) --durations=20 -m "not slow and not long"

test-slow: install
	XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) --durations=40 -m "slow and not long"

test-long: install
	XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) --durations=40 -m long

docs: install
	$(VENV)/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html

test-all: test test-slow test-long

test-bare: $(BARE)/.installed
	$(BARE)/bin/python -c "import sys, jax; print('Python', sys.version.split()[0], 'jax', jax.__version__)"
	$(BARE)/bin/python -m pytest $(WORKERS) $(BARE_FLAGS)

tpu: $(TPU)/.installed
	$(TPU)/bin/python -m pytest -n 2 --durations=20 -m "not long" tests/tpu

tpu-long: $(TPU)/.installed
	$(TPU)/bin/python -m pytest -n 2 --durations=20 -m long tests/tpu

$(MIRON_MODELS)/%/model.safetensors: | $(VENV)/.installed
	@test -f $(SHARED)/tools/make_real_models.py || \
	  { echo "$(MIRON_MODELS)/$* is not there, nor $(SHARED)/tools/make_real_models.py to make it: set MIRON_MODELS or SHARED"; exit 1; }
	$(RUN) $(SHARED)/tools/make_real_models.py --out $(MIRON_MODELS) $*

real: install $(MIRON_MODELS)/smollm2-135m/model.safetensors
	$(RUN) benchmarks/parity.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE) --limit=2
	$(GAUNTLET) --limit=1

parity: install $(MIRON_MODELS)/smollm2-135m/model.safetensors $(MIRON_MODELS)/gemma3-270m/model.safetensors
	$(RUN) benchmarks/parity.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE) --limit=10
	$(RUN) benchmarks/parity.py --model=$(MIRON_MODELS)/gemma3-270m --data_dir=$(BUNDLE) --limit=2
	$(GAUNTLET) --limit=20
	$(RUN) benchmarks/parity_miron.py --model=$(MIRON_MODELS)/smollm2-135m
	$(RUN) benchmarks/parity_miron.py --model=$(MIRON_MODELS)/gemma3-270m

bench: $(VENV)/.bench $(MIRON_MODELS)/smollm2-135m/model.safetensors
	$(RUN) benchmarks/bench_core.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE)
	$(RUN) benchmarks/bench_miron.py --model=$(MIRON_MODELS)/smollm2-135m
	$(RUN) benchmarks/bench_gauntlet.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE)
