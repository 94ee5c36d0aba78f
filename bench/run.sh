#!/usr/bin/env bash
# Runs the side-by-side benchmarks: ours and the peer in one run, on one machine, reported as ratios.
# Usage: bench/run.sh [apiserver|drain|evacuate|maintenance] [ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
what="${1:-apiserver}"
shift || true
cargo build --release --quiet --package evac --package evac-bench
kubernetes="$(bash tests/kubernetes/build.sh | tail -n 1)"
EVAC="$PWD/target/release/evac" EVAC_KUBERNETES="$kubernetes" exec target/release/evac-bench "$what" "$@"
