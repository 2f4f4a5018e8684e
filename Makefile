# Every target sets up what it needs: a .venv with the versions that constraints.txt pins.
PYTHON ?= python3
# Another build of torch: make test TORCH='torch==2.13.0 --index-url <your index>'
TORCH  ?= torch==2.13.0
JOBS   ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -q
SHARED := --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo test test-changed test-full check bench bench-planted bench-tuned bench-aa bench-traces bench-guard bench-packing bench-data bench-lab bench-zoo bench-lossy mutants gpu gpu-dry gpu-wheels snapshots docs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY)  ## find out why a small GPT trains slowly (about a minute)
	$(BIN)/gobrrr run examples/gpt/train.py

test: $(READY)  ## all tests but the slow ones, ten minutes on 2 cores
	$(PYTEST) -n $(JOBS) $(SHARED) --durations 20 -m "not slow and not gpu"

test-%: $(READY)  ## the tests of one room: make test-ledger
	$(PYTEST) -n $(JOBS) $(SHARED) -m "not slow and not gpu" tests/$*

test-changed: $(READY)  ## the tests that import what changed since BASE (HEAD where it is not said)
	$(BIN)/python -m tests.changed $(or $(BASE),HEAD) | xargs -r $(PYTEST) -n $(JOBS) $(SHARED) -m "not slow and not gpu"

test-full: $(READY)  ## all tests, one after the other, so that their timings are their own
	$(PYTEST) -m "not gpu"

check: $(READY)  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: bench-planted bench-tuned bench-aa bench-traces  ## all benchmarks, two hours on 2 quiet cores; results go to benchmarks/results/

bench-planted: $(READY)  ## the planted illnesses: what was named, what was missed, what was promised and came true
	$(BIN)/python -m benchmarks.planted

bench-tuned: $(READY)  ## six models of transformers: what gobrrr tune brings, beside compile alone and bf16 alone
	$(BIN)/python -m benchmarks.tuned

bench-aa: $(READY)  ## does a measurement see what is not there: a program against itself, 40 times, and simulated
	$(BIN)/python -m benchmarks.aa_simulated
	$(BIN)/python -m benchmarks.aa

bench-traces: $(READY)  ## published figures of real traces, and how reading grows with their size
	$(BIN)/python -m benchmarks.traces

bench-guard: $(READY)  ## broken and honest remedies before the numerics guard, an hour on 4 cores
	$(BIN)/python -m benchmarks.guard --sabotages --honest

bench-packing: $(READY)  ## packing and bucketing on six laws of lengths, a minute (PEERS=python with trl and transformers)
	$(BIN)/python -m benchmarks.packing $(if $(PEERS),--peers $(PEERS))

bench-data: $(READY)  ## what tune reaches of what a loader can give, six pipelines, half an hour (PEERS=python with gobrrr, Pillow, transformers, accelerate, loadtune)
	OMP_WAIT_POLICY=PASSIVE $(or $(PEERS),$(BIN)/python) -m benchmarks.headspace --minutes 4

bench-lab: $(READY)  ## all experiments of the lab that run here, and the pages made of them, half an hour (AS=a name for the machine)
	$(BIN)/gobrrr lab --all -o benchmarks/results/lab/$(or $(AS),here).json
	$(BIN)/python -m benchmarks.lab benchmarks/results/lab/$(or $(AS),here).json
	$(BIN)/python -m benchmarks.claims

bench-zoo: $(READY)  ## programs of some thirty libraries (those of benchmarks/zoo/requirements.txt that are installed), an hour
	$(BIN)/python -m benchmarks.zoo --truth --run

bench-lossy: $(READY)  ## twelve trained models: the gate's errors on them, forms by hand, tune --accept, two hours (PEERS=python with gobrrr, scikit-learn, transformers)
	OMP_NUM_THREADS=1 $(or $(PEERS),$(BIN)/python) -m benchmarks.lossy.gate --weights .lossy
	OMP_NUM_THREADS=1 $(or $(PEERS),$(BIN)/python) -m benchmarks.lossy --by-hand --weights .lossy
	OMP_NUM_THREADS=1 $(or $(PEERS),$(BIN)/python) -m benchmarks.lossy --weights .lossy

mutants: $(READY)  ## do the tests bite: 200 small faults in the rooms that judge, half an hour on 2 cores; who survives is printed
	$(BIN)/python -m benchmarks.mutants --jobs $(JOBS)

gpu: $(READY)  ## what a CUDA or ROCm device must prove, in parts of at most 9 minutes by worth (make gpu PART=2, ROW='"tune bert_base"')
	$(BIN)/python -m benchmarks.gpu $(if $(PART),--part $(PART)) $(if $(ROW),--row $(ROW))

gpu-dry: $(READY)  ## the same on this CPU, tiny: each row's code runs, no figure of it counts; ten to fifteen minutes on 2 quiet cores
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.gpu --device cpu --tiny --minutes 30 $(if $(PART),--part $(PART)) $(if $(ROW),--row $(ROW))

# torch of the device's build is there already: what would bring another one comes without its dependencies.
WHEELS       := numpy msgspec rich jinja2 psutil shtab transformers pytest hypothesis
WHEELS_ALONE := nvidia-ml-py liger-kernel torchao py-spy
WHEELS_FOR    = $(if $(FOR),--python-version $(FOR) $(addprefix --platform manylinux,_2_28_x86_64 _2_27_x86_64 _2_24_x86_64 _2_17_x86_64 2014_x86_64 1_x86_64))
gpu-wheels: $(READY)  ## wheels for a machine with a GPU and no network, in build/wheels (FOR=3.12 where its Python is another)
	$(BIN)/python -m pip download --quiet --only-binary=:all: $(WHEELS_FOR) -d build/wheels $(WHEELS)
	$(BIN)/python -m pip download --quiet --only-binary=:all: $(WHEELS_FOR) --no-deps -d build/wheels $(WHEELS_ALONE)
	@echo "there: pip install --no-index --find-links build/wheels $(WHEELS); pip install --no-index --no-deps --find-links build/wheels $(WHEELS_ALONE)"

snapshots: $(READY)  ## write what people see anew, after a change of words or figures; git diff shows it
	$(PYTEST) --snapshot-update tests/snapshots
	git diff --stat -- tests/snapshots

docs: $(VENV)/.docs  ## the pages as a site in build/site, without network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## remove the environment, caches and recordings
	rm -rf $(VENV) .gobrrr .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

$(VENV)/.docs: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable '.[docs]'
	@touch $@

$(READY): pyproject.toml lab/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt --editable '.[dev,dask]' --editable lab $(TORCH)
	@touch $@
