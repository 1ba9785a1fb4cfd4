# Five commands; each does its own set-up. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
WORKSPACE ?= kernelevolve-workspace
QUICKSTART = cpu/rms_norm cpu/map_id cpu/masked_mean_ragged

.DEFAULT_GOAL := help
.PHONY: help quickstart lab test lint clean compiler

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

quickstart: $(VENV)/.lab compiler  ## search for faster kernels on this machine, write report.html
	$(BIN)/kernelevolve run $(QUICKSTART) --steps 12 --workspace $(WORKSPACE) --report report.html

lab: $(VENV)/.lab compiler  ## open the quick-start notebook in JupyterLab
	$(BIN)/jupyter lab notebooks/00_quickstart.ipynb

test: $(VENV)/.dev compiler  ## run the tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

compiler:
	@command -v g++ >/dev/null || { echo "A C++ compiler is needed and g++ was not found. Install it with 'apt-get install g++' (Debian, Ubuntu) or 'dnf install gcc-c++' (Fedora)."; exit 1; }

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Name another one with 'make PYTHON=python3.12 …'."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is needed: 'apt-get install python3-venv' (Debian, Ubuntu)."; rm -rf $(VENV); exit 1; }

$(VENV)/.lab: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[lab]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[lab,dev]'
	@touch $@ $(VENV)/.lab
