# SPDX-License-Identifier: Apache-2.0
# Short names for the project's commands; each one is a script that can be called directly.
.PHONY: demo test clients e2e bench bench-sm check fuzz-smoke clean build
.DEFAULT_GOAL := build

build: ## build everything into build/
	tools/setup
	cmake --preset release
	cmake --build --preset release -j $$(nproc)
demo: ## share simulated GPUs between real processes, live
	tools/demo
test: ## every test that needs no cluster and no GPU
	tools/test
clients: ## real clients of the driver API, bare and under libvgpu
	tools/clients
e2e: ## a real Kubernetes control plane
	@echo "there is nothing to run end to end yet: hami-scheduler has not landed" >&2; exit 1
bench: ## what the library costs, side by side
	tools/bench
bench-sm: ## how well limits on GPU time are kept: hours; tools/bench-sm --quick takes minutes
	tools/bench-sm
check: ## formatting, linter, second compiler, sanitizers
	tools/check
fuzz-smoke: ## every fuzz target for a short while
	tools/fuzz-smoke
clean:
	rm -rf build build-*
