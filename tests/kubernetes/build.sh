#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-kubernetes unless it is built already, and prints its path; see ../build-go.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' "$here/go.mod")
IFS=. read -r major minor _ <<<"${version#v}"
flags=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
done
exec bash "$here/../build-go.sh" kubernetes "$flags" "Kubernetes $version" kubectl
