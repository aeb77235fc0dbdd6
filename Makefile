# `make` shows what there is. Building and running need Go; what tests need besides is installed into .tools, and by apt where that is there: a C compiler (for the race detector), Postgres, PgBouncer.
GO ?= go
TOOLS := $(CURDIR)/.tools
STATICCHECK := $(TOOLS)/staticcheck-v0.8.2
GOFUMPT := $(TOOLS)/gofumpt-v0.12.0
GOVULNCHECK := $(TOOLS)/govulncheck-v1.8.0
GOSEC := $(TOOLS)/gosec-v2.22.10
NATSCLI := $(TOOLS)/natscli-v0.4.0/nats
SAMPLES := $(TOOLS)/samples/node_modules/nats

# Without symbol tables, which panics and profiles do not need, and without the trace pages of gRPC, which nobody serves: their templates call methods by
# their names, with which the linker keeps every exported method of everything.
BUILD := -trimpath -tags grpcnotrace -ldflags "-s -w"

# What applications import.
LIBRARIES := ./client/... ./machines/... ./streams/outbox

# Modules of their own, for the sake of their libraries; those that need npm or a Kubernetes API server have targets of their own.
MODULES := bench torture internal/release docs/examples/own-binary

.DEFAULT_GOAL := help

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The first build compiles all libraries, in silence if it were not for -v: its lines are names of packages, which are counted.
build: ## build bin/instar
	@[ -x bin/instar ] || echo "Building bin/instar. The first time all libraries are downloaded and compiled, some 1,100 packages: that takes minutes. Later it is seconds."
	@{ $(GO) build -v $(BUILD) -o bin/instar ./cmd/instar 2>&1 && echo built; } | { n=0; failed=1; while IFS= read -r line; do case "$$line" in \
	  built) failed=0;; \
	  *[!A-Za-z0-9_./-]*) echo "$$line";; \
	  *) n=$$((n + 1)); [ $$((n % 50)) != 0 ] || echo "  $$n packages compiled";; \
	  esac; done; exit $$failed; }

cluster: build ## build and start three nodes here, with a table of how they stand: data in ./data, HTTP on 127.0.0.1:8080 to 8082
	./bin/instar cluster dev

run: build ## build and start a server here, with a sample service: data in ./data, HTTP on 127.0.0.1:8080, NATS on 127.0.0.1:4222
	./bin/instar dev

# Tested without the race detector, under which they take three times the processor time, and their libraries (of Kubernetes, git, certificates, object stores) are compiled once more:
# whole programs, which start instar, or a process of a test that serves as it does, and kill it; what puts them together; and providers whose work is done by Postgres, git or other
# processes. `make race` tests all of them under it nevertheless. Tables are pure: to walk them whole takes a hundred times as long under it, and shows nothing.
PROGRAMS := ./machines/... ./providers/database/... ./cmd/instar/... ./server/... ./providers/platform/... ./providers/runner/... ./providers/knative/... ./internal/simulation/shop
RULES := ./internal/floorplan ./internal/crosscheck

# go vet is in `make check`, beside the torture. The longest packages first, or the last one is left alone. Programs are tested one more at a time than there
# are cores, because they wait a good part of it; under the race detector that takes as long, and tests of seconds are late.
test: postgres samples ## all tests, those of goroutines under the race detector, the import table, linters, some simulation, and a short torture
	$(GO) test -vet=off -count=1 $(RULES)
	PATH="$(dir $(NATSCLI)):$$PATH" $(GO) test -vet=off -p $(AT_ONCE) -timeout 25m $(PROGRAMS)
	$(GO) test -vet=off -race -p $(CORES) -timeout 15m ./streams/outbox/relay ./consumers/engine ./consumers/prober $$($(GO) list ./... | grep -vxF "$$($(GO) list $(PROGRAMS) $(RULES))")
	@mkdir -p $(TOOLS); nice -n 19 $(MAKE) --no-print-directory beside > $(TOOLS)/beside.txt 2>&1 & beside=$$!; \
	  $(MAKE) --no-print-directory torture-short; tortured=$$?; \
	  wait $$beside; failed=$$?; [ $$failed = 0 ] || cat $(TOOLS)/beside.txt; grep '^console: ' $(TOOLS)/beside.txt; [ $$failed = 0 ] && exit $$tortured
CORES = $(shell nproc 2>/dev/null || echo 2)
AT_ONCE = $(shell echo $$(( $(CORES) + 1 )))

modules: ## vet and test the modules of their own: benchmarks, torture, releases, the example of a binary of one's own; the first time takes minutes
	for module in $(MODULES); do $(GO) -C $$module vet ./... && $(GO) -C $$module test -vet=off ./... || exit 1; done

postgres: ## install Postgres and PgBouncer, and a C compiler, from Debian's packages where they are absent; the tests need them
	@want=; [ "$$($(GO) env CGO_ENABLED)" = 1 ] || want="gcc libc6-dev"; command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || want="$$want postgresql"; \
	  command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || want="$$want pgbouncer"; \
	  [ -z "$$want" ] || { \
	  command -v apt-get >/dev/null || { echo "not here, and this is no Debian, so install it:$$want (initdb, postgres and pgbouncer on PATH, and a C compiler for the race detector)"; exit 1; }; \
	  as=; [ "$$(id -u)" = 0 ] || as=sudo; [ -z "$$as" ] || command -v sudo >/dev/null || { echo "not here, install it as root: $$want"; exit 1; }; \
	  $$as apt-get update -q && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -qy $$want; }

# apt installs Debian's packages where there is a way to.
define apt
{ as=; [ "$$(id -u)" = 0 ] || as=sudo; command -v apt-get >/dev/null && { [ -z "$$as" ] || command -v sudo >/dev/null; } && \
  $$as apt-get update -q && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(1); }
endef

samples: ## what the workers and providers in docs/examples need: the nats CLI, jq, and nats for Node; the test of what cannot be installed is skipped
	@command -v jq >/dev/null || $(call apt,jq) || echo "could not install jq"
	@[ -d $(SAMPLES) ] || ! command -v npm >/dev/null || npm install --prefix $(TOOLS)/samples --no-audit --no-fund --no-package-lock --ignore-scripts nats@2.29.3 || echo "could not install nats for Node"
	-@$(MAKE) --no-print-directory $(NATSCLI)

test-kubernetes: ## the gateway knative against a real Kubernetes API server; building that takes minutes the first time
	cd providers/knative/realserver && $(GO) test -count=1 -timeout 20m .

# npm, dnsperf and promtool are taken where they are or can be installed; what is not there is skipped, and the tests say so.
test-tools: ## linters and generators of OpenAPI, AsyncAPI, promtool and dnsperf against a server; installs what it can
	@want=; command -v dnsperf >/dev/null || want=dnsperf; command -v promtool >/dev/null || want="$$want prometheus"; \
	  [ -z "$$want" ] || $(call apt,$$want) || echo "could not install $$want"
	@! command -v npm >/dev/null || (cd internal/tooltest && npm install --no-audit --no-fund --no-package-lock --ignore-scripts) || echo "could not install what npm has"
	cd internal/tooltest && $(GO) test -v -count=1 -timeout 15m .

# Integrity and files are those of the table in VENDOR.md; npm prints the hash of what it has packed.
VENDOR := api/console/web/vendor
vendor-web: ## take the JavaScript libraries of the console from npm anew, as api/console/web/vendor/VENDOR.md has them
	@d=$$(mktemp -d); sed -n 's/^| \([a-z]*\.js\) | \([a-z]*\) | \([0-9.]*\) | \([^ ]*\) | [^|]* | \(sha512-[^ ]*\) |$$/\1 \2 \3 \4 \5/p' $(VENDOR)/VENDOR.md | while read -r file name version from want; do \
	  tgz=$$(cd $$d && npm pack --silent --ignore-scripts $$name@$$version) || exit 1; \
	  have=sha512-$$(openssl dgst -sha512 -binary $$d/$$tgz | openssl base64 -A); [ "$$have" = "$$want" ] || { echo "$$name@$$version has the integrity $$have, not $$want"; exit 1; }; \
	  tar -xzf $$d/$$tgz -C $$d package/$$from && sed -e '/^\/\/# sourceMappingURL/d' -e 's/from"preact"/from".\/preact.js"/' $$d/package/$$from > $(VENDOR)/$$file && echo "$$file: $$name $$version" || exit 1; \
	done; s=$$?; rm -rf $$d; exit $$s

internal/uitest/node_modules: internal/uitest/package.json
	cd internal/uitest && npm install --no-audit --no-fund --no-package-lock --ignore-scripts && touch node_modules

# What is fetched can be broken off without harm, and has two minutes.
chromium: ## install Chromium from Debian's packages where it is absent; the tests of the console need it
	@[ -x "$${CHROMIUM:-/usr/bin/chromium}" ] || { as=; [ "$$(id -u)" = 0 ] || as=sudo; get="$$as env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium fonts-dejavu-core"; \
	  $$as timeout 60 apt-get update -q && timeout 120 $$get --download-only && $$get --no-download; }

# Packages are compiled as the tests of programs have them already. It is seconds, and on a machine that has much else to do has WITHIN seconds at most.
pages:
	@[ -x "$${CHROMIUM:-/usr/bin/chromium}" ] && command -v npm >/dev/null || { echo "console: its pages were not loaded, because chromium or npm is not here (make chromium)"; exit 0; }; \
	  $(MAKE) --no-print-directory internal/uitest/node_modules || { echo "console: its pages were not loaded, because npm could not install what drives a browser"; exit 0; }; \
	  $(GO) build -o $(TOOLS)/instar ./cmd/instar && cd internal/uitest && { INSTAR=$(TOOLS)/instar PATIENCE=$$(($(WITHIN) / 4)) timeout $(WITHIN) node --test once.test.mjs; case $$? in \
	  0) echo "console: each page was loaded in Chromium";; 124) echo "console: the time did not suffice for all of its pages";; *) exit 1;; esac; }
WITHIN = 300

test-ui: build chromium ## the web console in Debian's Chromium: pages wide and narrow, light and dark, with axe, live, after a kill; npm installs what drives it
	@command -v npm >/dev/null || { echo "npm is not here; it installs what drives the browser"; exit 1; }
	@$(MAKE) --no-print-directory internal/uitest/node_modules
	cd internal/uitest && node --test --test-concurrency=1 stream.test.mjs api.test.mjs ui.test.mjs forms.test.mjs lists.test.mjs again.test.mjs systems.test.mjs walk.test.mjs signin.test.mjs
	@[ -z "$(UPDATE)" ] || cp internal/uitest/shots/failed-desktop-light.png docs/images/console.png

bench-ui: build internal/uitest/node_modules ## figures of the web console in Debian's Chromium, with ENTITIES (100,000) in a list
	cd internal/uitest && node figures.mjs

test-kills: postgres ## kill the server at each step of a tenant's move, of its instance, of their undo, and of a domain, with Postgres and a certificate authority; takes many minutes
	INSTAR_KILLS=1 $(GO) test -count=1 -timeout 10m -run TestKillsAtEveryStep -v ./server/domains
	INSTAR_KILLS=1 $(GO) test -count=1 -timeout 40m -run "TestKills|TestNATSDies" -v ./server/tenants
	INSTAR_KILLS=1 $(GO) test -count=1 -timeout 20m -run TestKillsAtEveryStep -v ./server/platform

cross: ## build for macOS, and the libraries also for Windows; the first time compiles all libraries for each
	@for at in darwin/arm64 darwin/amd64; do echo "instar for $$at"; GOOS=$${at%/*} GOARCH=$${at#*/} $(GO) build -o /dev/null ./cmd/instar || exit 1; done
	@for os in darwin windows; do echo "libraries for $$os"; GOOS=$$os $(GO) build $(LIBRARIES) || exit 1; done

release: ## binaries, what is in each (CycloneDX), SHA256SUMS, and its signature, in ./dist: make release VERSION=v1.2.3 KEY=FILE
	$(GO) -C internal/release build -o $(TOOLS)/release .
	$(TOOLS)/release -version "$(VERSION)" -key "$(KEY)" -out dist

race: ## the tests of the parts with goroutines, several times over
	$(GO) test -race -count=3 -timeout 30m ./streams ./streams/embedded ./streams/publish ./kv/... ./consumers/... ./providers/... ./api
	$(GO) test -race -timeout 30m ./cmd/instar/... ./server/... ./internal/simulation/shop
	$(GO) test -race -timeout 30m ./streams/outbox/relay -run TestARelayMayEndAnywhere -whole

vet:
	$(GO) vet ./...

# What runs beside the torture, which waits most of the time: the model of JetStream whole, which takes too long under the race detector, seeds of the simulation, and the pages of the console.
beside: check
	$(GO) test ./internal/simulation/model
	$(MAKE) --no-print-directory simulate FOR=60s FROM=1 SEEDS=300
	$(MAKE) --no-print-directory simulate OF=relays FOR=15s FROM=1 SEEDS=100
	$(MAKE) --no-print-directory mutants MUTANT=quick
	$(MAKE) --no-print-directory fuzz BLIND=1 FOR=1s
	$(MAKE) --no-print-directory pages

check: vet $(STATICCHECK) $(GOFUMPT) ## go vet, also without the console, staticcheck, gofumpt, and whether go.mod is tidy
	@wrong=$$($(GOFUMPT) -l . | grep -v '^\.tools/'); test -z "$$wrong" || { echo "not formatted (run make fmt):"; echo "$$wrong"; exit 1; }
	@for module in . $(MODULES); do $(GO) -C $$module mod tidy -diff || exit 1; done
	@for module in $(MODULES); do $(GO) -C $$module vet ./... || exit 1; done
	$(GO) vet -tags no_ui ./api/console ./api ./server ./cmd/instar
	$(STATICCHECK) ./...

lint: check modules gosec $(GOVULNCHECK) ## go vet, gosec, staticcheck, gofumpt; govulncheck where its database can be reached
	@$(GOVULNCHECK) ./...; code=$$?; case $$code in 0) ;; 3) exit 3 ;; *) echo "govulncheck could not run ($$code): it needs vuln.go.dev, which this machine may not reach" ;; esac

# What gosec does not look for, and why:
#   G104 errors that nobody handles: those of hashes, which never fail, and of what is closed after another error
#   G115 numbers converted between sizes and signs: sequences, sizes and times far below the limits; what a request says is bounded where it is read
#   G304 files named by variables: by flags, the configuration and the data directory; what a request names is opened below an os.Root
#   G404 math/rand: waits, weights and shares; what nobody may guess comes from crypto/rand
# Programs for measuring, torturing and releasing, and examples, are left out. One line is excluded by "// #nosec RULE -- why".
gosec: $(GOSEC) ## look for what is unsafe; minutes
	$(GOSEC) -quiet -exclude=G104,G115,G304,G404 -exclude-dir=bench -exclude-dir=torture -exclude-dir=docs/examples -exclude-dir=internal/release ./...

fmt: $(GOFUMPT) ## format all Go files
	$(GOFUMPT) -w .

vuln: $(GOVULNCHECK)
	$(GOVULNCHECK) ./...

bench: ## measure this machine: transitions per second of the program, AGAINST=another and beside RESTATE=restate-server and ETCD=etcd, and beside the raw ceiling of JetStream, one million entities
	$(GO) -C bench run ./program $(if $(AGAINST),-against $(abspath $(AGAINST))) $(if $(RESTATE),-restate $(abspath $(RESTATE))) $(if $(ETCD),-etcd $(abspath $(ETCD)))
	$(GO) -C bench run ./transitions

bench-outbox: ## measure the relay of the outbox beside Watermill's SQL forwarder; needs Postgres
	$(GO) -C bench run ./outbox

bench-provisioning: ## measure how a tenant gets into a database of its own, beside other ways: copy, pause of writers, many tenants, a kill; needs Postgres with psql
	$(GO) -C bench run ./provisioning

bench-discovery: ## measure discovery on this machine: registration, heartbeats, finding, watching, memory, rolling restarts, a cluster
	$(GO) -C bench run ./discovery

bench-tasks: ## measure tasks that do nothing beside jobs of River; needs Postgres
	$(GO) -C bench run ./tasks $(if $(AGAINST),-against $(abspath $(AGAINST)))

bench-proxy: ## measure the proxy in front of tenants beside a bare httputil.ReverseProxy
	$(GO) -C bench run ./proxy

bench-platform: postgres ## measure how 20 tenants get instances of their own, and upgrade one ten times under load; takes minutes
	INSTAR_FIGURES=1 $(GO) test -count=1 -timeout 20m -run TestFigures -v ./server/platform

simulate: ## run seeds of the simulation for FOR=5m; SEED=7 shows one step by step, OF=relays is the world of an outbox
	$(GO) run ./internal/simulation/cmd/simulate $(if $(OF),-of $(OF)) $(if $(AIM),-aim $(AIM)) $(if $(SEED),-seed $(SEED),-for $(or $(FOR),5m) $(if $(SEEDS),-seeds $(SEEDS)) $(if $(FROM),-from $(FROM)))

repeats: ## run seeds of the simulation in two processes, and compare them step by step; OF=relays as above
	$(GO) run ./internal/simulation/cmd/simulate -repeats $(if $(OF),-of $(OF))

mutants: postgres ## take guards out of the program one by one, and see that the simulation finds each; MUTANT=name runs one
	$(GO) run ./internal/simulation/cmd/simulate -mutants $(or $(MUTANT),all)

fuzz: ## run each fuzz target for FOR=2s; with BLIND=1 not guided by coverage, for which nothing is compiled once more
	@grep -rlE --include='*_test.go' --exclude-dir=.tools --exclude-dir=bench --exclude-dir=torture '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r dir; do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' $$dir/*_test.go); do \
	    echo "$$dir $$target"; \
	    $(if $(BLIND),$(GO) test -vet=off -c -o $(TOOLS)/fuzz.test $$dir && (cd $$dir && $(TOOLS)/fuzz.test -test.fuzzcachedir $(TOOLS)/fuzzed -test.run '^$$' -test.fuzz "^$$target\$$" -test.fuzztime $(or $(FOR),2s)),$(GO) test -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FOR),2s) $$dir) || exit 1; done; done

torture: ## kill, cut and fill for ten minutes, leave a server alone for an hour, and print what held; PART=upgrade runs one part
	-@$(MAKE) --no-print-directory $(NATSCLI)
	PATH="$(dir $(NATSCLI)):$$PATH" $(GO) -C torture run . $(if $(PART),-only $(PART),-long)

torture-short:
	$(GO) -C torture run .

update: ## write transcripts, diagrams, golden files and the tables in docs anew; read the diff
	$(GO) test $$(grep -rl --include=*_test.go -e "instar/machines/transcript" -e "flag.Bool(.update" . | xargs -n1 dirname | sort -u) -update

cover: ## test coverage by package
	$(GO) test -cover ./... | grep -v 'no test files'

# Tools are built in a module of their own: some of them answer only to an exact version.
$(TOOLS)/staticcheck-v0.8.2: ; $(call tool,honnef.co/go/tools,v0.8.2,honnef.co/go/tools/cmd/staticcheck)
$(TOOLS)/gofumpt-v0.12.0: ; $(call tool,mvdan.cc/gofumpt,v0.12.0,mvdan.cc/gofumpt)
$(TOOLS)/govulncheck-v1.8.0: ; $(call tool,golang.org/x/vuln,v1.8.0,golang.org/x/vuln/cmd/govulncheck)
$(TOOLS)/gosec-v2.22.10: ; $(call tool,github.com/securego/gosec/v2,v2.22.10,github.com/securego/gosec/v2/cmd/gosec)
$(NATSCLI): ; $(call tool,github.com/nats-io/natscli,v0.4.0,github.com/nats-io/natscli/nats)

define tool
	@mkdir -p $(TOOLS) && d=$$(mktemp -d) && cd $$d && $(GO) mod init tool >/dev/null 2>&1 && $(GO) mod edit -require $(1)@$(2) \
	  && GOFLAGS=-mod=mod $(GO) build -o $@ $(3); s=$$?; rm -rf $$d; exit $$s
endef

.PHONY: repeats chromium pages samples bench-platform test-kills test-ui vendor-web beside modules bench-proxy simulate mutants fuzz check gosec release test-tools cross test-kubernetes bench-discovery bench-provisioning bench-tasks help build run cluster test postgres race vet lint fmt vuln bench bench-outbox torture torture-short update cover
