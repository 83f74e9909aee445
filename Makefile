# Two commands are enough: `make demo` and `make test`. Both create .venv where it is missing.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
INSTALLED := .venv/installed

# Real graphs, where a checkout has them beside it; the package itself looks only at LMC_DATA.
ifneq ($(wildcard ../shared/data),)
export LMC_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-quick test-long fuzz mutate bench bench-quick docs format clean

demo: $(INSTALLED)
	$(BIN)/lmc demo

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 --dist worksteal -m "not long"

# While writing code, in under a minute: without tests that start processes, each of which loads torch anew,
# without random examples, and without those marked slow.
test-quick: $(INSTALLED)
	$(BIN)/pytest -n 2 --dist worksteal -m "not long and not process and not slow and not fuzz"

# What takes minutes: the twins with plain kernels, figure 3 on arxiv, every kind of model on Cora, kills of every
# method, deep models.
test-long: $(INSTALLED)
	$(BIN)/pytest -n 2 --dist worksteal -m long

# Random examples without an end: until one fails, or Ctrl-C.
fuzz: $(INSTALLED)
	while $(BIN)/pytest -n 2 --dist worksteal -m fuzz --hypothesis-profile fuzz tests; do :; done

# A hundred small mistakes in the code, one at a time: which of them does no test notice? It takes hours, and goes
# on where it was stopped; `make mutate MUTANTS="--count 10 --seed 3 --until all"` asks for others.
mutate: $(INSTALLED)
	$(BIN)/python tests/mutate.py --jobs 2 $(MUTANTS)

# On a quiet machine only: nothing else may run beside it.
bench: $(INSTALLED)
	$(BIN)/lmc bench --out bench.json

bench-quick: $(INSTALLED)
	$(BIN)/lmc bench --quick --rounds 2

# The site, in site/: guides, and a page for every public name. What is broken or undocumented is an error.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# Constraints pin every version, the CPU build of torch among them.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@
