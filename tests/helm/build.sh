#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds evac-helm unless it is built already, and prints its path; see ../build-go.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(awk '$1 == "require" && $2 ~ /^helm/ { print $3; exit }' "$here/go.mod")
exec bash "$here/../build-go.sh" helm "" "Helm $version"
