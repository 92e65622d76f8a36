# `make help` lists the targets.

VERSION  ?= $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo devel)
FUZZTIME ?= 30s
FUZZ     ?= .*

# go.mod names the release of Go. An older go command downloads it, also where its own settings say that it may not.
export GOTOOLCHAIN := $(shell sed -n 's/^toolchain //p' go.mod)

GOLANGCI_VERSION := v2.15.0
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/criguard
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)-$(GOTOOLCHAIN)
NFPM_VERSION := v2.45.2
NFPM     := $(CACHE)/nfpm-$(NFPM_VERSION)
DIST     ?= dist
ARCH     ?= amd64 arm64 armv7 armv6 riscv64
EPOCH    := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),-1)

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# BUILD sets the version. Asking git again would fail if another user owns the tree.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

# grpcnotrace omits a debugging page whose templates keep the linker from dropping unused
# code: 2.4 MiB of the binary and 1.7 MiB resident. nethttpomithttp2 omits a second HTTP/2
# implementation besides gRPC's: half a MiB.
BUILD := CGO_ENABLED=0 go build -tags grpcnotrace,nethttpomithttp2 -trimpath -ldflags "-s -w -X main.version=$(VERSION)"
.PHONY: build
build: ## build bin/criguard, static
	$(BUILD) -o bin/criguard ./cmd/criguard

# Static binaries in dist/bin, for each of ARCH.
.PHONY: binaries
binaries:
	for arch in $(ARCH); do \
		go=$$arch; arm=; \
		if [[ $$arch == armv* ]]; then go=arm; arm=$${arch#armv}; fi; \
		GOOS=linux GOARCH=$$go GOARM=$$arm $(BUILD) -o $(DIST)/bin/$$arch/criguard ./cmd/criguard; \
	done

.PHONY: packages
packages: $(NFPM) binaries ## build deb and rpm in dist, for all architectures or ARCH="amd64 arm64 …"
	$(BUILD) -o $(DIST)/bin/criguard ./cmd/criguard
	go run ./packaging -nfpm $(NFPM) -dist $(DIST) -native $(DIST)/bin/criguard -version '$(VERSION)' -epoch $(EPOCH) $(ARCH)

.PHONY: image
image: binaries ## build a container image (OCI archive) in dist, for all architectures or ARCH="amd64 arm64 …"
	go run ./packaging/image -dist $(DIST) -version '$(VERSION)' -epoch $(EPOCH) $(ARCH)

.PHONY: man
man: ## generate criguard.toml(5) from docs/configuration.md
	go run ./packaging/manpage < docs/configuration.md > systemd/criguard.toml.5

.PHONY: json
json: ## generate docs/json.md from the types
	go test ./cmd/criguard -run TestJSONDoc -update

# leftovers runs a command, and fails if it leaves anything on the machine.
leftovers := go run ./test/leftovers

.PHONY: demo
demo: build ## show it prune and stop on this machine, with a private containerd (root)
	$(leftovers) go run ./test/demo

.PHONY: bench
bench: build ## measure it on this machine against earlyoom, three quarters of an hour (root); BENCH="-only latency" for less
	go run ./test/bench $(BENCH)

.PHONY: fleet
fleet: ## measure a fleet on this machine: 10,000 agents on one etcd, and 22 nodes end to end, 40 minutes (root); FLEET=TenThousand for less
	go run ./test/leftovers go test -run '^$$' -bench '^Benchmark($(or $(FLEET),EndToEnd|TenThousand))$$' -benchtime 1x -timeout 2h -v ./test/fleet

# gotest runs go test, and lists failed and skipped tests (test/gotest). With AGAIN=yes, a test that failed runs once more, alone.
gotest = $(leftovers) go run ./test/gotest $(if $(AGAIN),-again)

# Builds Kubernetes and etcd on first use.
.PHONY: cluster
cluster: ## test it beside a real kubelet and API server on this machine (root)
	$(gotest) -flags '-count=1 -timeout 25m' ./test/cluster

# Boots virtual nodes with their own kernel and systemd; installs qemu on first use.
.PHONY: e2e
e2e: $(if $(SCENARIO),,cluster) ## test it on whole virtual nodes and beside a kubelet (root); SCENARIO=regexp to select some; TRIES=5 for less; FAULTS=10m for more
	go run ./test/node -run '$(SCENARIO)' $(if $(TRIES),-tries $(TRIES)) $(if $(FAULTS),-faults $(FAULTS)) $(if $(SEED),-seed $(SEED)) $(if $(AGAIN),-again)

.PHONY: sidebyside
sidebyside: ## measure it against earlyoom, systemd-oomd, the kubelet and no guard on virtual nodes, hours (root); TRIES=5 for less
	go run ./test/node -compare docs/comparison-node.md -summary README.md $(if $(TRIES),-tries $(TRIES))

# The race detector waits a second at the end of each program, for late reports, unless told otherwise.
export GORACE := atexit_sleep_ms=0

# Packages whose tests need a container runtime, etcd, a Debian root, a browser or other tools. The rest are units, which need
# Go alone and may run concurrently.
REAL := ./test/live ./test/lab ./test/prune ./test/report ./test/prom ./test/docs ./test/package ./test/fleet
# Tests of test/live that show the whole on a real containerd.
SMOKE := TestCheckExample TestCheckMistakes TestCommandsMisused TestSecondInstance TestReload TestCrash \
	TestRuntimeKilledDuringStop TestDisk/containerd-1.6 TestHardEndsSoftGrace/containerd-1.6 \
	TestHardMemory/runtime_is_up/containerd-1.6 TestSoftMemory/ends_in_time/containerd-1.6
# Tests of test/docs that run what the documents show, instead of reading them.
RUNS_DOCS := ^(TestEveryCommandIsRun|TestUnitsAreGood)$$

.PHONY: test
test: vet unit smoke ## vet, test all units, and stop real pods on a real containerd; without root, tests that need it are skipped

.PHONY: vet
vet: ## vet, also for 32-bit ARM
	go vet ./...
	GOARCH=arm CGO_ENABLED=0 go vet ./...

.PHONY: unit
unit: ## test what needs no container runtime, with the race detector and the seeds of all fuzz targets; and check the documents
	$(leftovers) go run ./test/gotest -flags '-race -count=1 -p 4 -timeout 10m' \
		$$(go list ./... | grep -vxE '$(subst $() ,|,$(patsubst ./%,github.com/criguard/criguard/%,$(REAL) ./test/cluster))')
	$(leftovers) go run ./test/gotest -flags '-race -count=1 -timeout 10m' -skip '$(RUNS_DOCS)' ./test/docs

.PHONY: smoke
smoke: ## stop real pods on a real containerd
	$(leftovers) go run ./test/lab/install -only containerd-1.6
	$(leftovers) go run ./test/gotest -again -flags '-race -count=1 -timeout 10m' -run '^$(subst $() ,$$|^,$(subst /,$$/^,$(strip $(SMOKE))))$$' ./test/live

# One package at a time (-p 1): some tests measure time, and some share the node's cgroups. test/cluster is part of e2e.
.PHONY: test-real
test-real: ## run all tests on real runtimes, in a Debian root and in a browser, on an otherwise idle machine
	$(leftovers) go run ./test/lab/install
	$(gotest) -flags '-race -count=1 -p 1 -timeout 30m' $(REAL)

.PHONY: verify
verify: ## run everything but the benchmarks, an hour
	.ci/verify

# On 32-bit boards int is 32 bits wide, and 64-bit atomics need alignment.
.PHONY: test32
test32: ## vet for 32-bit ARM, and run the tests without a runtime as 386 (on x86)
	GOARCH=arm CGO_ENABLED=0 go vet ./...
	GOARCH=386 CGO_ENABLED=0 go test ./policy ./cgroup ./cri ./reclaim ./systemd ./guard/... ./cmd/... ./packaging

.PHONY: world
world: ## run the service in simulated worlds: SEEDS=1000 or SEEDS=1000-2000, or SEED=7 to read the story of one, with TRACE=file for simulate
	CRIGUARD_SEEDS=$(or $(SEEDS),1000) CRIGUARD_SEED=$(SEED) CRIGUARD_TRACE=$(abspath $(TRACE)) go test -count=1 $(if $(SEED),-v -run '^TestSeeds$$') -timeout 24h ./test/world

.PHONY: properties
properties: ## test what is promised of decisions on 10,000 random traces and 21,600 simulated nodes
	CRIGUARD_TRACES=10000 CRIGUARD_LOOPS=200 go test -count=1 -v -run '^TestP[0-9]|^TestClosedLoop$$' -timeout 1h ./guard/simulate

.PHONY: lint
lint: $(GOLANGCI) ## check format, style and the import rule
	$(GOLANGCI) run
	go mod tidy -diff

$(GOLANGCI):
	mkdir -p $(CACHE)/build
	GOBIN=$(CACHE)/build CGO_ENABLED=0 go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(CACHE)/build/golangci-lint $@

$(NFPM):
	mkdir -p $(CACHE)/build
	GOBIN=$(CACHE)/build CGO_ENABLED=0 go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv $(CACHE)/build/nfpm $@

.PHONY: fuzz
fuzz: ## run every fuzz target whose name matches FUZZ for FUZZTIME each
	@grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file" | grep -xE "$(FUZZ)"); do \
			go test -run='^$$' -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")"; \
		done; \
	done

.PHONY: clean
clean: ## remove the build output
	rm -rf bin dist
