#!/usr/bin/env bash
# Installs what the checks need and this machine lacks: Debian packages, the
# pinned Go toolchain, the modules, the tools of tools/go.mod and the agent CLIs
# of testdata/engines. What is there is left alone. What cannot be installed
# ends the setup and is named; no check is skipped for want of it.
#
#	tools/setup.sh          all of that
#	tools/setup.sh bench    the programs make bench compares with
#	tools/setup.sh npm      the agent CLIs only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# command:package, for what the tests, the scripts and make itself run.
needed=(
  bash:bash dash:dash git:git gcc:gcc tar:tar
  ps:procps pgrep:procps fuser:psmisc strace:strace
  setpriv:util-linux unshare:util-linux flock:util-linux setsid:util-linux script:bsdutils
  mount:mount ip:iproute2 getent:libc-bin timeout:coreutils
  python3:python3 tmux:tmux less:less vi:vim-tiny
  shellcheck:shellcheck node:nodejs npm:npm
  spin:spin systemd-analyze:systemd curl:curl prometheus:prometheus ssh-keygen:openssh-client
  chromium:chromium chromedriver:chromium-driver
)
compared=(tsp:task-spooler sem:parallel beanstalkd:beanstalkd strace:strace python3:python3)

# timed runs a named step and says how long it took.
timed() {
  local name=$1 start=$SECONDS
  shift
  printf 'setup: %s\n' "$name"
  "$@"
  printf 'setup: %s: done after %d s\n' "$name" "$((SECONDS - start))"
}

die() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}

# lacking prints the packages of the pairs given whose command is not here.
lacking() {
  local pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null || printf '%s\n' "${pair##*:}"
  done | sort -u
}

# headers tells whether a C program can be compiled, which the race detector
# needs: a compiler alone comes without them.
headers() {
  printf '#include <stdlib.h>\nint main(void) { return 0; }\n' |
    gcc -x c -fsyntax-only - 2>/dev/null
}

install() { apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null; }

packages() {
  local want=() missing
  mapfile -t want < <(lacking "$@")
  headers || want+=(libc6-dev)
  if ((${#want[@]} == 0)); then
    printf 'setup: nothing is missing\n'
    return
  fi
  command -v apt-get >/dev/null || die "missing, and there is no apt-get to install it with: ${want[*]}"
  [ "$(id -u)" = 0 ] || die "missing, and only root can install it: ${want[*]}; run: apt-get install ${want[*]}"

  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null || die "apt-get update does not work; missing: ${want[*]}"
  if install "${want[@]}" 2>/dev/null; then
    printf 'setup: installed %s\n' "${want[@]}"
  else # one of them cannot be: which?
    local one
    for one in "${want[@]}"; do
      install "$one" || die "cannot install the package $one"
      printf 'setup: installed %s\n' "$one"
    done
  fi
  missing=$(lacking "$@" | paste -sd ' ')
  [ -z "$missing" ] || die "installed, and the commands of these are still not there: $missing"
}

toolchain() {
  command -v go >/dev/null || die "go is missing: install Go 1.26 or later"
  local have
  have=$(go env GOVERSION) || die "the Go toolchain $GOTOOLCHAIN cannot be had"
  printf 'setup: %s\n' "$have"
}

modules() {
  go mod download || die "the modules of go.mod cannot be had"
}

# tools builds the tools by running each once; the go command keeps them in its
# build cache.
tools() {
  local run
  for run in 'golangci-lint version --short' 'govulncheck -version' 'indexdb -h'; do
    read -ra run <<<"$run"
    go tool -modfile=tools/go.mod "${run[@]}" >/dev/null 2>&1 || die "cannot build ${run[0]}"
    printf 'setup: %s is there\n' "${run[0]}"
  done
}

# agents installs the CLIs the lock file names, unless that very lock file was
# installed here before by this very Node.
agents() {
  local dir=testdata/engines have want
  [ -f "$dir/package-lock.json" ] || die "$dir/package-lock.json is missing"
  local major
  major=$(node -p 'process.versions.node.split(".")[0]')
  ((major >= 20)) || die "the agent CLIs need Node 20 or later; here is $(node --version)"
  want="$(node --version) $(sha256sum <"$dir/package-lock.json")"
  have=$(cat "$dir/node_modules/.handsel-installed" 2>/dev/null || true)
  if [ "$have" = "$want" ]; then
    printf 'setup: nothing is missing\n'
    return
  fi
  (cd "$dir" && npm ci --no-audit --no-fund --loglevel=error </dev/null) || die "npm ci in $dir did not work"
  printf '%s\n' "$want" >"$dir/node_modules/.handsel-installed"
}

case ${1:-all} in
  all)
    timed 'Debian packages' packages "${needed[@]}"
    # The CLIs are mostly a download, the tools mostly work: both at once.
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    timed 'agent CLIs' agents >"$said" 2>&1 &
    clis=$!
    timed 'Go toolchain' toolchain
    timed 'Go modules' modules
    timed 'Go tools' tools
    got=0
    wait "$clis" || got=$?
    cat "$said"
    ((got == 0)) || exit "$got"
    ;;
  bench) timed 'Debian packages to compare with' packages "${compared[@]}" ;;
  npm) timed 'agent CLIs' agents ;;
  *) die "unknown part: $1" ;;
esac
