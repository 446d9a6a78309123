# Every target sets up what it needs. `make` alone lists them.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo run test check cover generate release-contract lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup:  ## make .venv with everything in it (PYTHON=... names the interpreter)
	@PYTHON="$(PYTHON)" scripts/setup

demo: setup  ## run the main job on a mesh that lives as long as the demo
	@$(BIN)/trunkline demo

run: setup  ## bring a mesh up and keep it up
	@$(BIN)/trunkline up
