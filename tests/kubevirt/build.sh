#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-kubevirt unless it is built already. The last line on standard
# output is the path of the binary; everything else goes to standard error.
# Exit code 3: Go is missing or too old, so a test may want to skip.
set -euo pipefail
export LC_ALL=C # the order of *.go must not depend on the locale

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=${EVAC_KUBEVIRT_CACHE:-$repo/target/kubevirt}

wanted=$(awk '$1 == "go" { print $2; exit }' "$here/go.mod")
if ! command -v go >/dev/null; then
    echo "evac-kubevirt needs Go $wanted or newer to be built, and there is no go on the PATH." >&2
    exit 3
fi
# Never let go fetch another toolchain: the key below names the one in use.
export GOTOOLCHAIN=local
# Asked outside the module, where an old go would refuse to say anything.
toolchain=$(cd / && go env GOVERSION GOOS GOARCH)
found=${toolchain%%[[:space:]]*}
oldest=$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -n 1)
if [ "$oldest" != "$wanted" ]; then
    echo "evac-kubevirt needs Go $wanted or newer to be built, and the go on the PATH is ${found#go}." >&2
    exit 3
fi

digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
key=$({ echo "$toolchain"; cd "$here" && cat go.mod go.sum ./*.go build.sh; } | digest | cut -c 1-16)

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
out=$cache/$key
binary=$out/evac-kubevirt
if [ ! -x "$binary" ]; then
    # One build at a time: two would only take twice as long.
    if command -v flock >/dev/null; then
        exec 9>"$cache/lock"
        flock 9
    fi
fi
if [ ! -x "$binary" ]; then
    version=$(awk '$1 == "kubevirt.io/kubevirt" { print $2; exit }' "$here/go.mod")
    # virtctl compares its version with the server's, so it must know its own.
    flags="-s -w -X kubevirt.io/client-go/version.gitVersion=$version"
    echo "building evac-kubevirt with KubeVirt $version; the first time takes some minutes" >&2
    temp=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$temp"' EXIT
    (cd "$here" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -buildvcs=false -trimpath \
        -ldflags "$flags" -o "$temp/evac-kubevirt" .) >&2
    mkdir -p "$out"
    ln -sfn evac-kubevirt "$out/virtctl"
    mv -f "$temp/evac-kubevirt" "$binary" # last: the binary means all is there
fi
echo "$binary"
