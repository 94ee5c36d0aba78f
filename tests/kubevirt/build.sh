#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-kubevirt unless it is built already, and prints its path; see ../build-go.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(awk '$1 == "kubevirt.io/kubevirt" { print $2; exit }' "$here/go.mod")
# virtctl compares its version with the server's, so it must know its own.
exec bash "$here/../build-go.sh" kubevirt "-X kubevirt.io/client-go/version.gitVersion=$version" "KubeVirt $version" virtctl
