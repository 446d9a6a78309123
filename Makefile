# Every target installs what it needs. `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
RELEASED := proto/released.binpb

.DEFAULT_GOAL := help
.PHONY: help setup partners demo run test prove check vulnerabilities cover wheel docs generate release-contract clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup:  ## make .venv with everything in it (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" scripts/setup

demo: setup  ## ask questions on a temporary mesh and show one trace
	@$(BIN)/trunkline demo

run: setup  ## start a mesh
	@$(BIN)/trunkline up

# Runs before the tests, so that no test waits for a package registry.
partners: setup
	@scripts/partners

# The tests of a file share fixtures, so one worker runs all of them.
test: setup partners  ## run all tests in parallel (ARGS=... goes to pytest; ARGS="-n0" runs them one by one)
	@$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

prove: setup partners  ## try to break every promise at full size; prints times and seeds (ARGS=... goes to pytest)
	@scripts/local_model
	@$(BIN)/pytest tests/property --hypothesis-profile=prove -q
	@$(BIN)/pytest tests/promises --prove -p no:randomly -q -s $(ARGS)

check: setup  ## check format, lint, types, spelling, imports, contract, licences and docs
	@scripts/check

vulnerabilities: setup  ## look the pinned dependencies up in the OSV database (ARGS=--require fails if it can't be reached)
	@$(BIN)/python scripts/check_vulnerabilities.py $(ARGS)

cover: setup  ## require 90 % branch coverage of journal, tasks and projection
	@scripts/cover $(ARGS)

wheel: setup  ## run the demo from a wheel, with lowest and tested dependencies (ARGS="newest": today's)
	@scripts/try_wheel $(ARGS)

docs: setup  ## build the documentation site into build/docs
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs

generate: setup  ## regenerate the code of proto/
	$(BIN)/python proto/generate.py

release-contract: setup  ## make proto/ the baseline of the breaking-change check (add a CHANGELOG line)
	$(BIN)/buf build -o $(RELEASED)

clean:  ## remove environments and caches
	rm -rf .venv .venv-uv .venv-partners .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf .coverage build dist htmlcov
