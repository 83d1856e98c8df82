# weir: `make help` lists the targets. CI calls only these.
.DEFAULT_GOAL := help
.PHONY: help setup plugin module run test e2e chaos soak mutants lint fmt bench bench-keep bench-lua bench-core images clean distclean
MAKEFLAGS += --no-print-directory

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything that the tests and lints need
	@scripts/setup

plugin: ## Build target/weir.wasm
	@scripts/setup plugin
	@scripts/plugin

module: ## Build target/libweir.so, weir as a dynamic module of Envoy
	@scripts/setup module
	@scripts/native

run: ## Build weir, start Redis, Envoy and an upstream, and stop them at Ctrl-C; PORT=10000 HOST=wasm|native
	@scripts/setup run
	@scripts/$(if $(filter native,$(HOST)),native,plugin)
	@PORT=$(PORT) HOST=$(HOST) scripts/run

test: ## Run every test; the last line is the tally
	@scripts/setup test
	@scripts/plugin
	@scripts/native
	@scripts/native instrumented
	@scripts/test

e2e: ## Run only the tests in a real Envoy on real stores, and in containers if Docker answers; HOST=wasm|native
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test e2e

chaos: ## Inject faults into Envoy, Redis and the network under load, judge times too; HOST=wasm|native; writes target/chaos/summary.json
	@scripts/setup e2e
	@scripts/plugin
	@scripts/native
	@WEIR_HOST=$(or $(HOST),wasm) scripts/test chaos

soak: ## Test every property on new random cases in each round; MINUTES=10
	@scripts/setup test
	@MINUTES=$(MINUTES) scripts/test soak

mutants: ## Change the core in one place at a time, and list the changes that no test notices; ARGS=src/limit for one folder
	@scripts/setup mutants
	@scripts/mutants $(ARGS)

lint: ## Check formatting, Rust, Lua, shell, documentation and the Envoy configurations
	@scripts/setup lint
	@scripts/plugin
	@scripts/native
	@scripts/lint

fmt: ## Format the Rust
	@cargo fmt --all

bench: ## Measure weir in both hosts, beside plain Envoy and nginx with Lua: twelve minutes on an idle machine; ROUNDS=12
	@scripts/setup bench
	@scripts/plugin
	@scripts/native
	@cargo build --quiet --package weir-native-empty --profile native
	@eval "$$(scripts/env)" && cargo bench --quiet --no-default-features --bench edge -- $(if $(ROUNDS),--rounds $(ROUNDS)) $(ARGS)

bench-keep: ## Copy the results of `make bench` to docs/bench, where the README shows them
	@cp $(addprefix target/bench/,table.txt costs.md summary.json cpu.svg latency.svg) docs/bench/

bench-lua: ## Measure the Lua scripts on a real Redis
	@scripts/setup run
	@eval "$$(scripts/env)" && cargo bench --no-default-features --bench lua

bench-core: ## Count the instructions of the core's steps with callgrind
	@scripts/setup bench_core
	@scripts/bench-core

images: ## Build container images of this machine's Envoy and Redis, if no registry can be reached
	@scripts/setup images
	@scripts/images build

clean: ## Remove target/
	@rm -rf target

distclean: clean ## Remove target/ and what setup installed in .tools/
	@rm -rf .tools
