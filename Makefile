# Everything runs on CPU from .venv; `make test` on a fresh machine installs what it needs.
#
#   make check         between commits: lint, types, and the tests that this branch's changes reach
#   make test          environment, lint, type check, the quick tests
#   make quick         the quick tests alone; style and types: the other two parts of it
#   make test-slow     the other tests: families, checkpoints, hosts, meshes, kills, programs that are run, wheels
#   make test-long     the benchmarks on a tiny model, more cases of the slow tests
#   make test-all      all three
#   make demo          the package alone in another venv, then `miron-jax eval` with no flags
#   make package       wheel and sdist, each installed and used in an environment of its own
#   make real          SmolLM2-135M against torch on a few real CORE and Gauntlet items, and CORE by the command
#   make parity        SmolLM2-135M and Gemma-3-270M against torch on many
#   make tpu           the engine's programs, compiled by libtpu for TPUs that are not here, in another venv (tpu-long: more)
#   make gpu           the same by XLA's compiler for NVIDIA GPUs that are not here (gpu-long: more)
#   make trainers      tiny checkpoints by the trainers' own packages, an environment each: every token beside theirs (not in CI)
#   make docs          docs/_build/html, without a network; a warning is an error
#   make bench         this engine beside torch and lm-eval
#   make test-bare     the tests without torch, in another venv: make test-bare PYTHON=python3.12 BARE_FLAGS="-m newest"

PYTHON ?= python3
MIRON_MODELS ?= $(HOME)/.cache/miron_jax/models
SHARED ?= ../shared
BUNDLE := $(SHARED)/data/eval_bundle
VENV := .venv
BARE := .venv-bare
PLAIN := .venv-plain
PACKAGED := .venv-packaged
TPU := .venv-tpu
GPU := .venv-gpu
TRAINERS := .venv-trainers
RUN := $(VENV)/bin/python
UV := $(VENV)/bin/uv
GAUNTLET = $(RUN) benchmarks/parity_gauntlet.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE) \
	--yamls=$(SHARED)/data/gauntlet_v0_1

WORKERS := -n 2 --dist loadfile --no-loadscope-reorder
# Compiling is most of what tests do, and takes a third of the time so (jaxlib 0.10.2).  The package, the real model and the
# newest Python run what users run.
FAST_COMPILER := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false

export MIRON_MODELS
export TRANSFORMERS_VERBOSITY ?= error

.PHONY: check docs package venv install lint style types quick test test-slow test-long test-all test-bare demo real parity bench tpu tpu-long gpu gpu-long trainers

venv: $(VENV)/bin/pip
install: $(VENV)/.installed

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

# pip installs torch, pinned: any other way takes a build for a GPU from the index.  uv installs the rest, in a tenth of
# pip's time.  Nobody waits for bytecode of the 5,000 files of torch and sympy that are never imported.
$(UV): | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --no-compile uv torch==2.13.0

$(VENV)/.installed: pyproject.toml | $(UV)
	$(UV) pip install --quiet --python $(RUN) "setuptools>=77" -e ".[test,docs]"
	touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(UV) pip install --quiet --python $(RUN) -e ".[test,bench]"
	touch $@

# An environment without torch: $(call environment,FOLDER,PACKAGES)
define environment
	$(UV) venv --quiet --clear --python $(PYTHON) $(1)
	$(UV) pip install --quiet --python $(1)/bin/python "setuptools>=77" $(2)
	touch $(1)/.installed
endef

$(BARE)/.installed: pyproject.toml | $(UV)
	$(call environment,$(BARE),build hypothesis pytest pytest-xdist -e .)

$(TPU)/.installed: pyproject.toml | $(UV)
	$(call environment,$(TPU),hypothesis pytest pytest-xdist -e ".[tpu]")

# Of jax[cuda13] what compiles without a GPU.
$(GPU)/.installed: pyproject.toml | $(UV)
	$(call environment,$(GPU),hypothesis pytest pytest-xdist -e . "jax[cuda13-local]" nvidia-cuda-nvcc nvidia-cudnn-cu13)

$(PLAIN)/.installed: pyproject.toml | $(UV)
	$(call environment,$(PLAIN),-e .)

demo: $(PLAIN)/.installed
	$(PLAIN)/bin/miron-jax eval

# As from an index: the wheel, then the sdist, in an environment and a folder that know nothing of this checkout.
package: install
	rm -rf dist $(PACKAGED)
	$(RUN) -m build --quiet --no-isolation --outdir dist
	$(call environment,$(PACKAGED),dist/*.whl)
	mkdir $(PACKAGED)/elsewhere
	cd $(PACKAGED)/elsewhere && ../bin/miron-jax eval --limit=2 --quiet && ../bin/miron-jax report miron-results --html=report.html
	$(UV) pip install --quiet --python $(PACKAGED)/bin/python --reinstall-package miron-jax --no-deps dist/*.tar.gz
	cd $(PACKAGED)/elsewhere && ../bin/miron-jax --version && ../bin/miron-jax tasks --json=tasks.json

lint: style types

style: install
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(RUN) benchmarks/mutants.py --check

types: install
	$(VENV)/bin/basedpyright --pythonpath $(RUN)

# pytest's status 5: the change reaches slow tests alone.
check: install
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(RUN) benchmarks/mutants.py --check
	files=$$($(RUN) tools/changed_tests.py --changed); test -z "$$files" || $(VENV)/bin/basedpyright --pythonpath $(RUN) $$files
	files=$$($(RUN) tools/changed_tests.py); test -z "$$files" || XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) \
	  -m "not slow and not long" $$files || test $$? = 5

test: lint quick

quick: install
	XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) -m "not slow and not long"

test-slow: install
	XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) -m "slow and not long"

test-long: install
	XLA_FLAGS="$(FAST_COMPILER)" $(RUN) -m pytest $(WORKERS) -m long

docs: install
	$(VENV)/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html

test-all: test test-slow test-long

test-bare: $(BARE)/.installed
	$(BARE)/bin/python -c "import sys, jax; print('Python', sys.version.split()[0], 'jax', jax.__version__)"
	$(BARE)/bin/python -m pytest $(WORKERS) $(BARE_FLAGS)

tpu: $(TPU)/.installed
	$(TPU)/bin/python -m pytest -n 2 -m "not long" tests/tpu

tpu-long: $(TPU)/.installed
	$(TPU)/bin/python -m pytest -n 2 -m long tests/tpu

gpu: $(GPU)/.installed
	$(GPU)/bin/python -m pytest -n 2 -m "not long" tests/gpu

gpu-long: $(GPU)/.installed
	$(GPU)/bin/python -m pytest -n 2 -m long tests/gpu

# Some alone: make trainers ONLY=flax,levanter
trainers: install
	$(RUN) benchmarks/trainers/compare.py --uv=$(UV) --folder=$(TRAINERS) --trainers="$(ONLY)"

$(MIRON_MODELS)/%/model.safetensors: | $(VENV)/.installed
	@test -f $(SHARED)/tools/make_real_models.py || \
	  { echo "$(MIRON_MODELS)/$* is not there, nor $(SHARED)/tools/make_real_models.py to make it: set MIRON_MODELS or SHARED"; exit 1; }
	$(RUN) $(SHARED)/tools/make_real_models.py --out $(MIRON_MODELS) $*

# Of the Gauntlet one benchmark of each kind: choices, two contexts, categories, answers in the model's words, reasoning.
real: install $(MIRON_MODELS)/smollm2-135m/model.safetensors
	$(RUN) benchmarks/parity.py --model=$(MIRON_MODELS)/smollm2-135m --data_dir=$(BUNDLE) --limit=1 --shots=native
	$(GAUNTLET) --limit=1 --labels=arc_easy,winograd,jeopardy,triviaqa_sm_sub,aqua

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
