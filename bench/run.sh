#!/usr/bin/env bash
# Runs the side-by-side benchmarks: ours and the peer in one run, on one machine, reported as ratios.
# Usage: bench/run.sh [apiserver|beside|compare|drain|evacuate|maintenance|outlook|plan|scale] [ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
what="${1:-apiserver}"
shift || true
# One by one, so that the program is built with its own features alone, as people build it.
cargo build --release --quiet --package evac-bench
if [ "$what" = outlook ] || [ "$what" = plan ]; then
  exec target/release/evac-bench "$what" "$@"
fi
cargo build --release --quiet --package evac
if [ "$what" = scale ]; then
  EVAC="$PWD/target/release/evac" exec target/release/evac-bench "$what" "$@"
fi
kubernetes="$(bash tests/kubernetes/build.sh | tail -n 1)"
if [ "$what" = beside ]; then
  EVAC_KUBEVIRT="$(bash tests/kubevirt/build.sh | tail -n 1)"
  export EVAC_KUBEVIRT
fi
EVAC="$PWD/target/release/evac" EVAC_KUBERNETES="$kubernetes" exec target/release/evac-bench "$what" "$@"
