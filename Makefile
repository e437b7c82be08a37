# Short names for the usual steps; everything real is in CMake (see CMakePresets.json for the sanitizer builds).
#
#   make setup    install the Debian packages that are missing
#   make build    configure and build into build/; commands are in build/bin
#   make test     setup, build, then all tests but the long ones
#   make test-integrations   the Python package with current releases of other projects, from PyPI
#   make demo     setup, build, then a guided tour on this machine
#   make bench    benchmarks; BENCH_ARGS are handed on to `bench ep`
#   make soak     the long-running tests
#   make install  into PREFIX (default /usr/local), below DESTDIR if set
#   make format   clang-format over all sources
#   make clean

BUILD_DIR ?= build
BUILD_TYPE ?= RelWithDebInfo
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# Many tests wait for deadlines: one more than there are cores keeps the cores busy.
TEST_JOBS ?= $(shell expr $(JOBS) + 1)
CMAKE_ARGS ?=
BENCH_ARGS ?=

.PHONY: all setup build test test-integrations demo bench soak install format clean

all: build

setup:
	@scripts/setup.sh

build: setup
	cmake -S . -B $(BUILD_DIR) -G Ninja -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) $(CMAKE_ARGS)
	cmake --build $(BUILD_DIR) -j $(JOBS)

# ctest comes last, so that its summary ends the output; brief, so that what failed is not lost among what passed.
test: build
	scripts/sanitizers.sh build
	scripts/fuzz.sh build
	@GTEST_BRIEF=1 ctest --test-dir $(BUILD_DIR) -j $(TEST_JOBS) --output-on-failure --label-exclude '^soak$$'

test-integrations: build
	scripts/integrations.sh $(BUILD_DIR)

demo: build
	@BUILD_DIR=$(BUILD_DIR) scripts/demo.sh

bench: build
	$(BUILD_DIR)/bin/switchyard bench ep --figures --json $(BUILD_DIR)/bench.json $(BENCH_ARGS)
	$(BUILD_DIR)/bin/switchyard bench gin --json $(BUILD_DIR)/bench-gin.json

soak: build
	SWITCHYARD_SANITIZE_ALL=1 scripts/sanitizers.sh build
	scripts/fuzz.sh build
	@GTEST_BRIEF=1 ctest --test-dir $(BUILD_DIR) -j $(TEST_JOBS) --output-on-failure --label-regex '^soak$$'

install: build
	cmake --install $(BUILD_DIR) --prefix $(PREFIX)

format:
	git ls-files '*.c' '*.cc' '*.h' '*.hpp' | xargs clang-format -i

clean:
	rm -rf $(BUILD_DIR)
