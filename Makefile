# `make help` says what there is.

VERSION  ?= $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo devel)
FUZZTIME ?= 30s
FUZZ     ?= .*

GOLANGCI_VERSION := v2.15.0
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/criguard
GOLANGCI := $(CACHE)/golangci-lint-$(GOLANGCI_VERSION)
NFPM_VERSION := v2.45.2
NFPM     := $(CACHE)/nfpm-$(NFPM_VERSION)
DIST     ?= dist
ARCH     ?= amd64 arm64 armv7 armv6 riscv64
EPOCH    := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),-1)

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
# The version is stamped below; asking git again fails where the tree is someone else's.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

.PHONY: help
help: ## say what there is
	@sed -nE 's/^([a-z0-9-]+):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

# grpcnotrace leaves out a debugging page whose templates keep the linker from dropping
# code that nothing calls: 2.4 MiB of the binary and 1.7 MiB resident. nethttpomithttp2
# leaves out a second HTTP/2, beside gRPC's: half a MiB.
BUILD := CGO_ENABLED=0 go build -tags grpcnotrace,nethttpomithttp2 -trimpath -ldflags "-s -w -X main.version=$(VERSION)"
.PHONY: build
build: ## build bin/criguard, static
	$(BUILD) -o bin/criguard ./cmd/criguard

.PHONY: packages
packages: $(NFPM) ## make deb and rpm in dist, for all architectures or ARCH="amd64 arm64 …"
	$(BUILD) -o $(DIST)/bin/criguard ./cmd/criguard
	for arch in $(ARCH); do \
		go=$$arch; arm=; \
		if [[ $$arch == armv* ]]; then go=arm; arm=$${arch#armv}; fi; \
		GOOS=linux GOARCH=$$go GOARM=$$arm $(BUILD) -o $(DIST)/bin/$$arch/criguard ./cmd/criguard; \
	done
	go run ./packaging -nfpm $(NFPM) -dist $(DIST) -native $(DIST)/bin/criguard -version '$(VERSION)' -epoch $(EPOCH) $(ARCH)

.PHONY: man
man: ## make criguard.toml(5) of docs/configuration.md
	go run ./packaging/manpage < docs/configuration.md > systemd/criguard.toml.5

.PHONY: demo
demo: build ## see it prune and stop on this machine, with a private containerd (root)
	go run ./test/demo

.PHONY: bench
bench: build ## measure it on this machine beside earlyoom, a quarter of an hour (root); BENCH="-only latency" for less
	go run ./test/bench $(BENCH)

# Nodes that boot, with a kernel and systemd of their own; installs qemu on first use.
.PHONY: e2e
e2e: ## prove it on whole virtual nodes (root); SCENARIO=name for some, a regular expression; FAULTS=10m for long random faults
	go run ./test/node -run '$(SCENARIO)' $(if $(FAULTS),-faults $(FAULTS)) $(if $(SEED),-seed $(SEED)) $(if $(AGAIN),-again)

.PHONY: sidebyside
sidebyside: ## measure it against earlyoom, systemd-oomd and nobody on one virtual node (root)
	go run ./test/node -compare docs/comparison-node.md

# The race detector waits a second at each program's end, for reports that come late, unless told otherwise.
export GORACE := atexit_sleep_ms=0

# Packages whose tests need a container runtime, a Debian root, a browser or other tools. The rest are units, which need
# Go alone and may run beside each other.
REAL := ./test/live ./test/lab ./test/prune ./test/report ./test/prom ./test/docs ./test/package
# Tests of test/live that show the whole on a real containerd.
SMOKE := TestCheckExample TestCheckMistakes TestCommandsMisused TestSecondInstance TestReload TestCrash TestRuntimeKilled \
	TestRuntimeKilledDuringStop TestDisk/containerd-1.6 TestHardEndsSoftGrace/containerd-1.6 \
	TestHardMemory/runtime_is_up/containerd-1.6 TestSoftMemory/ends_in_time/containerd-1.6
# Tests of test/docs that run what the documents show, rather than read them.
RUNS_DOCS := ^(TestEveryCommandIsRun|TestUnitsAreGood)$$

# gotest runs tests with flags and packages, and says which were skipped.
gotest = go test -race -count=1 -json $(1) | go run ./test/skipcheck

.PHONY: test
test: vet unit smoke ## vet, test all units, and stop real pods on a real containerd; as root, or what needs it is skipped

.PHONY: vet
vet: ## vet, also for 32 bits
	go vet ./...
	GOARCH=arm CGO_ENABLED=0 go vet ./...

.PHONY: unit
unit: ## test what needs no container runtime, with the race detector and the seeds of all fuzz targets; and read the documents
	$(call gotest,-p 2 -timeout 10m $$(go list ./... | grep -vxE '$(subst $() ,|,$(REAL:./%=github.com/criguard/criguard/%))'))
	$(call gotest,-timeout 10m -skip '$(RUNS_DOCS)' ./test/docs)

.PHONY: smoke
smoke: ## stop real pods on a real containerd
	go run ./test/lab/install -only containerd-1.6
	$(call gotest,-timeout 10m -run '^$(subst $() ,$$|^,$(subst /,$$/^,$(strip $(SMOKE))))$$' ./test/live)

# One package at a time: some measure time, and some share the node's cgroups.
.PHONY: test-real
test-real: ## run all tests on real runtimes, in a Debian root and in a browser, twenty minutes; on a machine that is idle otherwise
	go run ./test/lab/install
	$(call gotest,-p 1 -timeout 30m $(REAL))

.PHONY: verify
verify: ## run everything but the benchmarks, an hour
	.ci/verify

# Of what boards with 32 bits run: int is 32 bits wide, and 64-bit atomics want alignment.
.PHONY: test32
test32: ## vet for 32-bit ARM, and run the tests without a runtime as 386 (on x86)
	GOARCH=arm CGO_ENABLED=0 go vet ./...
	GOARCH=386 CGO_ENABLED=0 go test ./policy ./cgroup ./cri ./reclaim ./systemd ./guard/... ./cmd/... ./packaging

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

# Go before 1.27 may take the end of FUZZTIME for a failure of the target (go.dev/issue/75804):
# it then says nothing else, and whether anything was found is told by the inputs it has kept.
DEADLINE := \n--- FAIL: Fuzz\w+ \([0-9.]+s\)\n    context deadline exceeded\nFAIL\n
.PHONY: fuzz
fuzz: ## run every fuzz target whose name matches FUZZ for FUZZTIME each
	@out=$$(mktemp); trap 'rm -f "$$out"' EXIT; \
	grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file" | grep -xE "$(FUZZ)"); do \
			go test -run='^$$' -fuzz="^$$target$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" | tee "$$out" || \
				{ grep -Pzq '$(DEADLINE)' "$$out"; go test -count=1 -run="^$$target$$" "$$(dirname "$$file")"; }; \
		done; \
	done

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin dist
