# Two commands matter to a newcomer: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
.PHONY: help demo test build fmt clippy bench test-fresh clean-run

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## watch containers use a simulated GPU; installs nothing
	@scripts/berth.sh demo

test: ## install what tests need, then run every check
	@scripts/test.sh

build: ## the release binary and the simulated driver libraries
	@scripts/check-tools.sh
	cargo build --locked --release -p berth -p berth-sim-cuda -p berth-sim-nvml

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
	rm -rf .run
