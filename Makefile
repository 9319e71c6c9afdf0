# All commands run in .venv, which `install` builds and keeps up to date. `make` alone lists them.

BIN := .venv/bin
# Tests of a file share what is costly to make, so they stay on one worker.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

# Compiled programs are kept between test runs; flags left over in the caller's shell must not change what is tested.
test verify: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.cache/jax
test verify: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
unexport XLA_FLAGS

.DEFAULT_GOAL := help
.PHONY: help install demo test verify paper paper-small lint clean

help: ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r command what; do \
		printf '%-18s %s\n' "$$command" "$$what"; done

install: .venv/.installed ## build .venv and install lwa with its development tools (PYTHON=... picks the interpreter)
	@:

demo: install ## fit a million simulated rows and show what came of it
	@$(BIN)/lwa demo

test: lint ## lint, type-check and run the tests and the docstring examples
	$(PYTEST) --doctest-modules src tests

verify: install ## run the longer statistical and fault tests
	$(PYTEST) -m slow

paper: install ## make every figure and table of the paper at its own sizes, and docs/paper.md
	@$(BIN)/python -m experiments.paper --scale paper --out docs/paper

paper-small: install ## the same in about two minutes, small, into build/paper/small
	@$(BIN)/python -m experiments.paper --scale small

lint: install ## check style, formatting and types
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

clean: ## remove .venv and every cache
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last and names this folder. An environment whose stamp is missing was left half-made; one whose
# stamp names another folder was copied or moved and still points there; one whose Python no longer starts is dead.
# Each is built anew. A sound one is only brought up to date.
SOUND := $(shell $(BIN)/python -c '' 2>/dev/null && cat .venv/.installed 2>/dev/null)
ifneq ($(SOUND),$(CURDIR))
.PHONY: .venv/.installed
endif

.venv/.installed: pyproject.toml constraints.txt
	@rm -f $@
ifneq ($(SOUND),$(CURDIR))
	@python=$$(PYTHON="$(PYTHON)" $(SHELL) scripts/find_python.sh) && "$$python" -m venv --clear .venv
endif
	@echo "Installing lwa and its development tools into .venv (about a minute)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e ".[dev]" -c constraints.txt
	@echo "$(CURDIR)" > $@
