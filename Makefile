# Every target sets up what it needs. `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin
RELEASED := proto/released.binpb

.DEFAULT_GOAL := help
.PHONY: help setup partners demo run test prove check cover generate release-contract clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup:  ## make .venv with everything in it (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" scripts/setup

demo: setup  ## run the main job on a mesh that lives as long as the demo
	@$(BIN)/trunkline demo

run: setup  ## bring a mesh up and keep it up
	@$(BIN)/trunkline up

# Before the tests, since what a registry takes to answer is no test's time.
partners: setup
	@scripts/partners

# A file's tests share what it starts, so each file is run by one worker.
test: setup partners  ## run all tests, some at once (ARGS=... goes to pytest; ARGS="-n0" one by one)
	@$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

prove: setup partners  ## try to break every promise at full size; prints times and seeds (ARGS=... goes to pytest)
	@$(BIN)/pytest tests/promises --prove -p no:randomly -q -s $(ARGS)

check: setup  ## format, lint, types, imports, contract: all that needs no test run
	@scripts/check

cover: setup  ## hold journal, tasks and the bridge's projection to 90 % branch coverage
	@scripts/cover $(ARGS)

generate: setup  ## make the code of proto/ anew
	$(BIN)/python proto/generate.py

release-contract: setup  ## take proto/ as it is for what later changes may not break (add a CHANGELOG line)
	$(BIN)/buf build -o $(RELEASED)

clean:  ## remove the environments and all caches
	rm -rf .venv .venv-uv .venv-partners .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf .coverage build dist htmlcov
