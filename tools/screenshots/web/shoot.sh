#!/usr/bin/env bash
# Makes the pictures of the page of `handsel web` for the docs, by Chromium, of a
# home with stand-in agents: tools/screenshots/web/shoot.sh HANDSEL DIRECTORY.
set -euo pipefail
handsel=$(realpath "$1") out=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
CGO_ENABLED=0 go build -o "$scratch/fakeagent" ./internal/fakeagent/cmd/fakeagent
go run ./internal/browsertest/cmd/screenshots -handsel "$handsel" -fakeagent "$scratch/fakeagent" -out "$out"
