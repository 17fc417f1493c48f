#!/usr/bin/env bash
# Plants faults in the ownership core and asks the tests to notice (L27):
# tools/mutants.sh [FLAGS]; docs/mutants.md has the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
(cd tools/mutants && go test ./... && CGO_ENABLED=0 go build -o "$scratch/mutants" .)
nice "$scratch/mutants" "$@"
