#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-helm unless it is built already. The last line on standard output
# is the path of the binary; everything else goes to standard error.
# Exit code 3: Go is missing or too old, so a test may want to skip.
set -euo pipefail
export LC_ALL=C # the order of *.go must not depend on the locale

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=$repo/target/helm

wanted=$(awk '$1 == "go" { print $2; exit }' "$here/go.mod")
if ! command -v go >/dev/null; then
    echo "evac-helm needs Go $wanted or newer to be built, and there is no go on the PATH." >&2
    exit 3
fi
export GOTOOLCHAIN=local
toolchain=$(cd / && go env GOVERSION GOOS GOARCH)
found=${toolchain%%[[:space:]]*}
oldest=$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -n 1)
if [ "$oldest" != "$wanted" ]; then
    echo "evac-helm needs Go $wanted or newer to be built, and the go on the PATH is ${found#go}." >&2
    exit 3
fi

digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
key=$({ echo "$toolchain"; cd "$here" && cat go.mod go.sum ./*.go build.sh; } | digest | cut -c 1-16)
out=$cache/$key
binary=$out/evac-helm
if [ ! -x "$binary" ]; then
    mkdir -p "$out"
    echo "building evac-helm" >&2
    temp=$(mktemp -d "$out/build.XXXXXX")
    trap 'rm -rf "$temp"' EXIT
    (cd "$here" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath \
        -ldflags "-s -w" -o "$temp/evac-helm" .) >&2
    mv -f "$temp/evac-helm" "$binary" # last: the binary means all is there
fi
echo "$binary"
