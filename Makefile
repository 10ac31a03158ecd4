# Two commands matter to a newcomer: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help demo test test-kubernetes build install fmt clippy bench test-fresh clean-run fuzz soak

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## watch containers use a simulated GPU; installs nothing
	@scripts/berth.sh demo

test: ## install what tests need, then run every check
	@scripts/test.sh

soak: ## the property tests with other random cases, twenty times
	@scripts/soak.sh

fuzz: ## the decoder of node reports, for a minute, guided by coverage
	@scripts/fuzz.sh

test-kubernetes: ## berth on a real API server, scheduler and kubelet; builds them once
	@scripts/kubernetes/test.sh

build: ## the release binary, the library for tenants, and the simulated driver libraries
	@scripts/check-tools.sh
	cargo build --locked --release -p berth -p berth-sim-cuda -p berth-sim-nvml
	@if [ "$$(uname -m)" = x86_64 ]; then scripts/shim.sh; else echo "no library for tenants on this architecture"; fi

install: build ## into /usr (or DESTDIR/usr): the binary, the library for tenants, the systemd units
	@packaging/install.sh "$(DESTDIR)"

fmt: ## format the code
	cargo fmt --all

clippy: ## lint, warnings are errors
	cargo clippy --locked --workspace --all-targets -- -D warnings

bench: build ## how fast and how cheaply berth notices
	@scripts/berth.sh bench detect

test-fresh: ## demo and test from a fresh clone on a fresh Debian 12
	scripts/fresh-debian.sh

clean-run: ## stop and remove what an interrupted `make test` left
	scripts/docker-instance.sh stop .run/docker
	scripts/swarm.sh stop target/tmp/swarm
	rm -rf .run
