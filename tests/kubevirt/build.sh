#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-kubevirt unless it is built already, and prints its path; see ../build-go.sh. With the word `previous` it is built
# from the minor release before, whose modules are in previous.mod.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
modules=${1:-go}
version=$(awk '$1 == "kubevirt.io/kubevirt" { print $2; exit }' "$here/$modules.mod")
# virtctl compares its version with the server's, so it must know its own.
flags="-X kubevirt.io/client-go/version.gitVersion=$version"
exec bash "$here/../build-go.sh" kubevirt "$flags" "KubeVirt $version" virtctl "$modules"
