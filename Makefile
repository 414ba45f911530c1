# The commands of this project. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
CONDUCTOR := $(TARGET_DIR)/debug/conductor

# Puts the tools of scripts/setup on PATH and tells the tests where they are.
WITH_TOOLS := eval "$$(scripts/setup --env)";

# mold links debug builds faster where it is installed (scripts/setup mold).
# One setting for every cargo call below, because another one means another
# build of everything; `make MOLD=` leaves it out.
MOLD ?= $(shell cc -fuse-ld=mold -Wl,--version 2>/dev/null | grep mold >/dev/null && echo yes)
ifneq ($(MOLD),)
export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS := -C link-arg=-fuse-ld=mold
endif

.PHONY: help build run up setup test test-quick bench chaos lint fmt

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

build:
	@scripts/setup compiler
	$(CARGO) build -p conductor

run: build ## build, deploy an example on the embedded default, query its database
	@scripts/setup python3
	@CONDUCTOR_BIN=$(CONDUCTOR) scripts/demo

up: build ## the server on the embedded default, in the foreground
	@exec $(CONDUCTOR) up

setup: ## install what the tests need, into a cache outside the checkout
	@scripts/setup

test: setup ## all tests, with real servers and tools
	@$(WITH_TOOLS) set -x; $(CARGO) test --workspace

test-quick: ## the tests that need no server beyond SQLite
	@scripts/setup compiler git python3
	CONDUCTOR_TEST_QUICK=1 $(CARGO) test --workspace

bench: setup ## measure against the hand-written references
	@$(WITH_TOOLS) set -x; $(CARGO) run --release -p conductor-bench

chaos: setup ## kill workers and servers at every step, and see nothing stuck
	@$(WITH_TOOLS) set -x; CONDUCTOR_CHAOS=1 $(CARGO) test -p conductor-tests chaos -- --ignored --nocapture

lint: ## format, clippy, licences and sources of dependencies, size of files
	@scripts/setup compiler cargo-deny
	scripts/check-tree
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(WITH_TOOLS) set -x; cargo-deny --log-level error check licenses bans sources

fmt: ## format the code
	$(CARGO) fmt --all
