#!/usr/bin/env bash
# Makes the picture of handsel top: a home with stand-in engines at work, the
# screen in a tmux of fixed size, and what is on it as an SVG.
# Usage: top.sh HANDSEL [FILE]   (FILE: docs/images/top.svg)
set -euo pipefail

bin=$(realpath "${1:?usage: top.sh HANDSEL [FILE]}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=$(realpath -m "${2:-docs/images/top.svg}")
columns=110 rows=30

scratch=$(mktemp -d)
home=$scratch/home
mkdir -m 700 "$home"
mkdir "$scratch/bin"
export HANDSEL_HOME=$home HANDSEL_CONFIG=$scratch/config.toml TMUX_TMPDIR=$scratch
export PATH=$scratch/bin:$PATH
unset TMUX NO_COLOR HANDSEL_AGENT_DEPTH
pane() { tmux -u -f /dev/null -L shot "$@"; }
tidy() {
  pane kill-server 2>/dev/null || true
  "$bin" dispatch stop --cancel-running >/dev/null 2>&1 || true
  rm -rf "$scratch"
}
trap tidy EXIT

# The stand-ins work until they are ended.
for engine in claude codex gemini; do
  printf '#!/bin/sh\nexec sleep 600\n' >"$scratch/bin/$engine"
  chmod 755 "$scratch/bin/$engine"
done
printf '[admission]\nmode = "dispatcher"\n' >"$HANDSEL_CONFIG"
export HANDSEL_MAX_AGENTS=6 HANDSEL_MAX_AGENTS_HEAVY=4 HANDSEL_MAX_AGENTS_CODEX=2

until_shows() { # PATTERN COMMAND…
  local want=$1
  shift
  for _ in $(seq 600); do
    if "$@" 2>/dev/null | grep -Eq "$want"; then return; fi
    sleep 0.1
  done
  echo "top.sh: never saw $want" >&2
  "$@" >&2
  exit 1
}

"$bin" dispatch --background >/dev/null
at_work() { "$bin" enqueue "$@" >/dev/null 2>&1; }
for lane in api/login api/search; do at_work "$lane" --author nightly -- claude; done
for lane in web/search web/start; do at_work "$lane" --author issues -- codex; done
until_shows '"go": 4' "$bin" top --json
for lane in api/export docs/guide mobile/push; do at_work "$lane" --author nightly -- claude; done
at_work web/settings --author issues -- codex
at_work infra/alerts --author nightly -- gemini
"$bin" hold lane:infra/alerts --reason 'after the release' >/dev/null
until_shows '"wait": 5' "$bin" top --json

pane new-session -d -x "$columns" -y "$rows" "exec '$bin' top"
pane set-option -g status off \; set-option -g window-size manual \; resize-window -x "$columns" -y "$rows"
until_shows '^> api/export .*pool_full' pane capture-pane -p
until_shows ' infra/alerts .* hold' pane capture-pane -p

mkdir -p "$(dirname "$out")"
pane capture-pane -e -p | (cd tools/screenshots/top && go run . -columns "$columns" -rows "$rows" -title 'handsel top') >"$scratch/top.svg"
mv "$scratch/top.svg" "$out"
