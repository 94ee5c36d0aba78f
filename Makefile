.PHONY: build test lint bench demo sim sim-long

build:
	cargo build --release

# The same as `cargo xtask test`, which needs only Rust.
test:
	cargo xtask test

lint:
	cargo xtask lint

bench:
	bash bench/run.sh

demo:
	cargo run --release -- demo

# Faults at random in every scenario, and the planted bugs: some minutes on two cores. A run that fails prints the command that replays it.
SIM = cargo run --quiet --profile sim --package evac-sim --

sim:
	$(SIM) run --mode storm --seeds 1..41
	$(SIM) run --mode calm --seeds 1..6 --twice
	$(SIM) explore
	$(SIM) fuzz --mutations 2000

# Hours. SEEDS=1..2001 looks at more.
SEEDS ?= 1..1001
sim-long:
	$(SIM) run --mode storm --seeds $(SEEDS) --twice
	$(SIM) run --mode pairs --seeds $(SEEDS)
	$(SIM) run --mode crash --seeds 1..4
	$(SIM) run --mode single --seeds 1..2
	$(SIM) fuzz --mutations 1000000
	$(SIM) mutants --seeds 1..101 --write docs/safety.md
