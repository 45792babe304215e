# The commands of the README. CMake does the work; this file spares a newcomer its names.
BUILD ?= build
JOBS ?= $(shell nproc)
CMAKE_FLAGS ?=
# Several sources are compiled as one, in half of the time. Plain cmake, for who works on them, compiles each by itself.
CONFIGURE = cmake -G Ninja -S . -B $(BUILD) -DCMAKE_UNITY_BUILD=ON $(CMAKE_FLAGS)
REPORT = >$(BUILD).log 2>&1 || { cat $(BUILD).log; exit 1; }

.PHONY: demo build test soak bench asan asan-fleet tsan-fleet tidy format-check deploy-check clean setup-build setup-test setup-demo setup-bench

build: setup-build
	@$(CONFIGURE) -DTEMPER_TESTS=OFF $(REPORT)
	cmake --build $(BUILD) -j $(JOBS) --target temper temper-server temper-worker temper_devices

demo: setup-build setup-demo
	@$(MAKE) --no-print-directory build
	@examples/demo/run.sh $(BUILD)/bin

test: setup-build setup-test
	@$(CONFIGURE) -DTEMPER_TESTS=ON $(REPORT)
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure -j $$(($(JOBS) + 1))  # several wait for most of their time

# The faults of tests/chaos at their full figures: minutes of partitions and frozen processes, hundreds of kills, and a
# weekend in an hour (TEMPER_SOAK_MINUTES). A thousand seeds of the simulator. Then all sanitized tests, and the fleet's
# under ThreadSanitizer.
soak: setup-build setup-test
	@$(CONFIGURE) -DTEMPER_TESTS=ON $(REPORT)
	cmake --build $(BUILD) -j $(JOBS)
	TEMPER_SOAK=1 $(BUILD)/tests/chaos_test
	TEMPER_SIM_SEEDS=1000 $(BUILD)/tests/server_simulator_test
	$(MAKE) --no-print-directory asan
	$(MAKE) --no-print-directory tsan-fleet

# The programs of bench/README.md.
bench: setup-build setup-bench
	@$(CONFIGURE) -DTEMPER_TESTS=OFF -DTEMPER_BENCH=ON $(REPORT)
	cmake --build $(BUILD) -j $(JOBS) --target temper temper-server temper-worker \
	  bench_kernels bench_store bench_draft bench_sass bench_fleet bench_scaling bench_dashboard bench_annealer bench_search bench_spaces \
	  bench_gpu_draft

# The unit and fuzz tests under Address and Undefined Behaviour sanitizers.
asan: setup-build setup-test
	cmake --preset asan >$(BUILD)-asan.log 2>&1 || { cat $(BUILD)-asan.log; exit 1; }
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

# Of these the tests of what strangers talk to: server, storage, worker, wire, with nothing else built.
asan-fleet: setup-build setup-test
	cmake --preset asan >$(BUILD)-asan.log 2>&1 || { cat $(BUILD)-asan.log; exit 1; }
	cmake --build --preset asan-fleet -j $(JOBS)
	ctest --preset asan-fleet -j $(JOBS)

# The fleet's tests under ThreadSanitizer, but for those that run a sandbox.
tsan-fleet: setup-build setup-test
	cmake --preset tsan >$(BUILD)-tsan.log 2>&1 || { cat $(BUILD)-tsan.log; exit 1; }
	cmake --build --preset tsan-fleet -j $(JOBS)
	ctest --preset tsan-fleet -j $(JOBS)

tidy: setup-build setup-test
	@$(CONFIGURE) -DCMAKE_UNITY_BUILD=OFF -DTEMPER_TESTS=ON $(REPORT)
	git ls-files '*.cc' | xargs -P $(JOBS) -n 4 clang-tidy -p $(BUILD) --quiet

format-check: setup-test
	git ls-files '*.cc' '*.h' '*.c' | xargs clang-format --dry-run --Werror

# The Kubernetes manifests against their schemas. Fetches Python packages.
deploy-check:
	@deploy/kubernetes/check.sh

setup-build:
	@deploy/setup.sh build
setup-test:
	@BUILD=$(BUILD) deploy/setup.sh test
setup-demo:
	@deploy/setup.sh demo
setup-bench:
	@BUILD=$(BUILD) deploy/setup.sh bench

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-debug $(BUILD)-tsan build-deploy
