# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test check docs dist bench install format clean

demo: install  ## run the main job on embedded data
	$(BIN)/leco demo

test: install  ## run all tests, one process a core
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

dist: install  ## build the wheel and the source distribution into dist
	$(BIN)/python -m build

check: install  ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: install  ## build the documentation into build/docs; warnings, such as broken links, are errors
	$(BIN)/sphinx-build -E -W --keep-going -b html docs build/docs

bench: install  ## time what docs/explanation/performance.md reports: 15 minutes on an idle machine
	$(BIN)/python benchmarks/bench.py

format: install  ## fix what `check` complains about, where a tool can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(VENV)/.installed  ## make .venv and install everything into it

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
