.PHONY: build test lint bench demo

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
