# SPDX-License-Identifier: Apache-2.0
# Short names for the project's commands; each one is a script that can be called directly.
.PHONY: chart package demo test mutants clients e2e bench bench-node bench-sm bench-sched bench-placement check fuzz-smoke clean build
.DEFAULT_GOAL := build

build: ## build everything into build/
	tools/setup
	cmake --preset release
	cmake --build --preset release -j $$(nproc)
demo: ## share simulated GPUs between real processes, live
	tools/demo
test: ## every test that needs no cluster and no GPU
	tools/test
mutants: ## old mistakes put back, one at a time: their tests must fail
	tools/mutants
clients: ## real clients of the driver API, bare and under libvgpu
	tools/clients
e2e: ## on a real Kubernetes: control plane, kubelet, containerd
	tools/e2e
chart: ## the chart without a cluster; tools/e2e --chart installs it on one
	tools/chart-check
package: ## the archive that one machine installs from, in build/package
	tools/package
bench: ## what the library costs, side by side
	tools/bench
bench-node: ## what the programs of a node cost
	tools/bench-node
bench-sm: ## how well limits on GPU time are kept: hours; tools/bench-sm --quick takes minutes
	tools/bench-sm
bench-sched: ## hami-scheduler as kube-scheduler drives it, beside a null extender
	tools/bench-sched
bench-placement: ## how much of a cluster each placement policy gives away, simulated and through the program
	tools/bench-placement
check: ## formatting, linter, second compiler, sanitizers
	tools/check
fuzz-smoke: ## every fuzz target for a short while
	tools/fuzz-smoke
clean:
	rm -rf build build-*
