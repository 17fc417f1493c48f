#!/usr/bin/env bash
# Prints the packages that have a test file only a build with the given tag
# compiles, or of whose tests the given word makes more: tools/tagged.sh TAG,
# tools/tagged.sh -w WORD. With -t TAG it prints what -run takes for the tests
# that differ in that build: those in such files, and the scripts, which ask.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$1" = -t ]; then
  pattern="^//go:build .*\\b$2\\b"
  names=$(grep -rlE --include='*_test.go' --exclude-dir=node_modules --exclude-dir=.git -- "$pattern" . |
    xargs sed -nE 's/^func (Test[A-Za-z0-9_]*)\(t \*testing\.T\).*/\1/p' | sort -u | paste -sd'|')
  printf '^(%s)$\n' "TestScripts${names:+|$names}"
  exit
fi
if [ "$1" = -w ]; then
  pattern="\\b$2\\b"
else
  pattern="^//go:build .*\\b$1\\b"
fi
{ grep -rlE --include='*_test.go' --exclude-dir=node_modules --exclude-dir=.git -- "$pattern" . || true; } |
  xargs -r -n1 dirname | sort -u
