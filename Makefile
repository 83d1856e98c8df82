# weir: `make help` says what there is. CI calls nothing but these targets.
.DEFAULT_GOAL := help
.PHONY: help setup plugin run test e2e chaos soak mutants lint fmt bench bench-keep bench-lua bench-core images clean distclean
MAKEFLAGS += --no-print-directory

help: ## What there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Bring everything that building, running, testing and linting need
	@scripts/setup

plugin: ## Build target/weir.wasm
	@scripts/setup plugin
	@scripts/plugin

run: ## Build and start Redis, Envoy with weir, and an upstream; PORT=10000; Ctrl-C stops them
	@scripts/setup run
	@scripts/plugin
	@PORT=$(PORT) scripts/run

test: ## Run every test; the last line adds them up
	@scripts/setup test
	@scripts/plugin
	@scripts/test

e2e: ## Run only the tests on a real Envoy and Redis, in containers too where Docker answers
	@scripts/setup e2e
	@scripts/plugin
	@scripts/test e2e

chaos: ## Inject every fault into real parts under load, judge time too, and write target/chaos/summary.json
	@scripts/setup e2e
	@scripts/plugin
	@scripts/test chaos

soak: ## Try every property on ever new random cases; MINUTES=10
	@scripts/setup test
	@MINUTES=$(MINUTES) scripts/test soak

mutants: ## Change the core in one place at a time and find the changes that no test notices; ARGS=src/limit for one room
	@scripts/setup mutants
	@scripts/mutants $(ARGS)

lint: ## Check formatting, Rust, Lua, shell, documentation and the Envoy configurations
	@scripts/setup lint
	@scripts/plugin
	@scripts/lint

fmt: ## Format the Rust
	@cargo fmt --all

bench: ## Measure weir beside Envoy without it and beside nginx with Lua: ten minutes, on a machine that does nothing else
	@scripts/setup bench
	@scripts/plugin
	@eval "$$(scripts/env)" && cargo bench --quiet --no-default-features --bench edge -- $(ARGS)

bench-keep: ## Keep what `make bench` has measured in docs/bench, where the README shows it
	@cp target/bench/table.txt target/bench/summary.json target/bench/cpu.svg target/bench/latency.svg docs/bench/

bench-lua: ## Measure the Lua scripts on a real Redis
	@scripts/setup run
	@eval "$$(scripts/env)" && cargo bench --no-default-features --bench lua

bench-core: ## Count the instructions of the core's steps, under callgrind
	@scripts/setup bench_core
	@scripts/bench-core

images: ## Build local container images of this machine's Envoy and Redis, for where no registry is
	@scripts/setup images
	@scripts/images build

clean: ## Remove what was built
	@rm -rf target

distclean: clean ## Remove what setup brought to .tools, too
	@rm -rf .tools
