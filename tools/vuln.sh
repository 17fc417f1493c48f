#!/usr/bin/env bash
# Runs govulncheck against the vulnerability database in the version that
# tools/go.mod pins, indexed once into .cache. Nothing is asked over the
# network. A newer database: go get -modfile=tools/go.mod golang.org/x/vulndb@latest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=golang.org/x/vulndb
go mod download -modfile=tools/go.mod "$module"
version=$(go list -modfile=tools/go.mod -m -f '{{.Version}}' "$module")
source=$(go list -modfile=tools/go.mod -m -f '{{.Dir}}' "$module")
db=$PWD/.cache/vulndb-$version

if [ ! -d "$db" ]; then
  mkdir -p .cache
  rm -rf .cache/vulndb-*
  go tool -modfile=tools/go.mod indexdb -vulns "$source/data/osv" -out "$db.part"
  mv "$db.part" "$db"
fi
# An empty database finds nothing and says so happily.
entries=$(find "$db/ID" -name '*.json' | wc -l)
((entries >= 4000)) || {
  printf 'the vulnerability database in %s has only %d entries\n' "$db" "$entries" >&2
  exit 1
}
printf 'database %s, %d entries\n' "$version" "$entries"
go tool -modfile=tools/go.mod govulncheck -db "file://$db" ./...
