# Build, try, check and measure handsel. `make help` lists the targets.
#
# Releases and checks are built with one pinned toolchain, which the go command
# fetches by itself; it has the standard library without the vulnerabilities
# that the oldest release go.mod admits still has. `make demo` is the exception:
# it needs only make and the Go that is there. To build with your own Go:
#
#	make build GOTOOLCHAIN=local

theirs := $(or $(GOTOOLCHAIN),auto)

export GOTOOLCHAIN := go1.27.3

GO      ?= go
PREFIX  ?= /usr/local
BIN     := bin/handsel
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 20s

# The order in which `make test` takes its steps: what fails fastest comes
# first. Each is a target of its own. `make test STEPS="vet lint"` runs some.
STEPS ?= fmt vet build lint model race failpoint release ordinary demo-proves packaging cross vuln browser engines

.DEFAULT_GOAL := build
.PHONY: help build install demo test setup bench setup-bench soak fuzz crash mutants screenshots clean \
	fmt vet lint model race failpoint release ordinary demo-proves packaging cross vuln browser engines

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/handsel
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags='-s -w -X main.version=$(VERSION)' -o $(BIN) ./cmd/handsel

install: build ## install it below PREFIX (default /usr/local)
	install -d '$(DESTDIR)$(PREFIX)/bin'
	install -m 755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/handsel'

demo: export GOTOOLCHAIN := $(theirs)
demo: build ## show a cap at work, and lanes changing hands, with stand-in agents
	$(GO) run ./examples/demo -handsel $(BIN)

test: setup ## check everything CI checks, installing what is missing first
	@STEPS='$(STEPS)' bash tools/steps.sh

setup: ## install what the tests need and lacks here
	@bash tools/setup.sh

bench: build setup-bench ## measure against the floor and the neighbours
	$(GO) run ./bench -handsel $(BIN)

setup-bench: setup
	@bash tools/setup.sh bench

soak: build ## the long runs: ten minutes of storm, and every round count in full
	HANDSEL_SOAK=1 CGO_ENABLED=0 bash tools/soak.sh

fuzz: ## run every fuzz target for FUZZTIME (default 20s)
	@FUZZTIME='$(FUZZTIME)' bash tools/fuzz.sh

crash: ## kill at every pair of failpoints, not only at the sample that make test takes
	@bash tools/crash.sh

mutants: ## plant faults in the ownership core, and print which were caught and which survived
	@bash tools/mutants.sh

screenshots: build ## make the pictures in docs/images anew
	@bash tools/screenshots/top.sh $(BIN) docs/images/top.svg
	@bash tools/screenshots/web/shoot.sh $(BIN) docs/images

clean: ## remove what the build and the checks made here
	rm -rf bin .cache dist

# ---- the steps of make test ----

fmt: ## gofmt
	@bash tools/fmt.sh

vet: ## go vet without the test seams; the lint step has it with all of them
	$(GO) vet ./...

lint: ## golangci-lint for the Go code, shellcheck for the scripts
	$(GO) tool -modfile=tools/go.mod golangci-lint run
	shellcheck .ci/run tools/*.sh tools/screenshots/*.sh tools/screenshots/*/*.sh

model: ## check the handoff's model with spin, and that broken variants of it fail
	@bash tools/model.sh

race: ## the tests, under the race detector
	GORACE=atexit_sleep_ms=10 CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 10m ./...

failpoint: ## the tests of packages that inject failures, in a build that can
	@bash tools/failpoint.sh

release: build ## the release build, which must lack the seams
	@bash tools/release.sh $(BIN)

ordinary: build ## the tests as a user without privileges
	@bash tools/ordinary-user.sh $(BIN)

demo-proves: demo ## the demo, and that it notices a handsel that only runs its command
	@bash tools/demo-proves.sh

packaging: build ## systemd's judgement of the unit files, and a start by its sockets
	@bash tools/packaging.sh verify $(BIN)
	@bash tools/packaging.sh activate $(BIN)

cross: ## build and vet for every platform we name
	@bash tools/cross.sh

vuln: ## govulncheck, from a pinned copy of the database
	@bash tools/vuln.sh

browser: build ## the page of handsel web in Chromium, and one story through all windows
	@bash tools/setup.sh npm
	HANDSEL_BIN='$(CURDIR)/$(BIN)' $(GO) test -count=1 -timeout 5m -tags browser ./internal/browsertest

engines: build ## the agent CLIs from npm under handsel, without a network
	@bash tools/setup.sh npm
	HANDSEL_BIN='$(CURDIR)/$(BIN)' $(GO) test -count=1 -v -timeout 15m -tags engines ./internal/enginetest/...
