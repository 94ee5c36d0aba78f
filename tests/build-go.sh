#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the Go program of one folder beside this, unless it is built already:
#
#     build-go.sh FOLDER LDFLAGS WHAT [LINK [MODULES]]
#
# The program is called evac-FOLDER, WHAT is told to people who wait for it, and
# LINK is another name for it in its folder. MODULES.mod and MODULES.sum say which
# versions it is built from, go.mod and go.sum if not given. The last line on standard output is
# the path of the program; everything else goes to standard error. It is kept in
# target/FOLDER, or in $EVAC_FOLDER_CACHE, under a key made from its sources and
# the Go version.
# Exit code 3: Go is missing or too old, so a test may want to skip.
set -euo pipefail
export LC_ALL=C # the order of *.go must not depend on the locale

folder=$1 flags="-s -w $2" what=$3 link=${4:-} modules=${5:-go}
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
here=$tests/$folder
program=evac-$folder
chosen="EVAC_$(printf %s "$folder" | tr '[:lower:]' '[:upper:]')_CACHE"
cache=${!chosen:-$tests/../target/$folder}

wanted=$(awk '$1 == "go" { print $2; exit }' "$here/$modules.mod")
if ! command -v go >/dev/null; then
    echo "$program needs Go $wanted or newer to be built, and there is no go on the PATH." >&2
    exit 3
fi
# Never let go fetch another toolchain: the key below names the one in use.
export GOTOOLCHAIN=local
# Asked outside the module, where an old go would refuse to say anything.
toolchain=$(cd / && go env GOVERSION GOOS GOARCH)
found=${toolchain%%[[:space:]]*}
oldest=$(printf '%s\n' "$wanted" "${found#go}" | sort -V | head -n 1)
if [ "$oldest" != "$wanted" ]; then
    echo "$program needs Go $wanted or newer to be built, and the go on the PATH is ${found#go}." >&2
    exit 3
fi

digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }
key=$({ echo "$toolchain"; cd "$here" && cat "$modules.mod" "$modules.sum" ./*.go build.sh ../build-go.sh; } | digest | cut -c 1-16)

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
out=$cache/$key
binary=$out/$program
if [ ! -x "$binary" ]; then
    # One build at a time: two would only take twice as long.
    if command -v flock >/dev/null; then
        exec 9>"$cache/lock"
        flock 9
    fi
fi
if [ ! -x "$binary" ]; then
    echo "building $program with $what; the first time takes some minutes" >&2
    temp=$(mktemp -d "$cache/build.XXXXXX")
    trap 'rm -rf "$temp"' EXIT
    (cd "$here" && CGO_ENABLED=0 GOWORK=off go build -mod=readonly -modfile="$modules.mod" -buildvcs=false -trimpath \
        -ldflags "$flags" -o "$temp/$program" .) >&2
    mkdir -p "$out"
    if [ -n "$link" ]; then
        ln -sfn "$program" "$out/$link"
    fi
    mv -f "$temp/$program" "$binary" # last: the program means all is there
fi
echo "$binary"
