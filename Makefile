# The commands people use. The build itself is CMake's (presets in CMakePresets.json); this file installs what is
# missing, configures and calls it.

PYTHON := /usr/bin/python3
FORMAT := clang-format-14
FORMATTED = $(shell find src tests bench -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
NINJA := ninja
CMAKE_INPUTS := CMakeLists.txt CMakePresets.json tests/CMakeLists.txt

.PHONY: build demo check test bench format check-format check-tree deps clean

build: build/build.ninja
	@$(NINJA) -C build

# Only the program: the tests take three times as long to compile.
demo: build/build.ninja
	@$(NINJA) -C build weir
	@tools/demo.sh

# The fast part of the tests: under two minutes.
check: check-format check-tree build
	@tools/run_tests.sh fast

# All of it: both labels, the demo, and the fast tests again under the sanitizers.
test: check-format check-tree build
	@tools/run_tests.sh all

bench: deps
	@cmake --preset release -DWEIR_BENCH=ON >/dev/null
	@$(NINJA) -C build
	@set -e; for program in build/bench/bench_*; do $$program; done

format: deps
	@$(FORMAT) -i $(FORMATTED)

check-format: deps
	@$(FORMAT) --dry-run -Werror $(FORMATTED)

check-tree: deps
	@$(PYTHON) tools/check_test.py --quiet
	@$(PYTHON) tools/check.py

deps:
	@tools/install_deps.sh

build/build.ninja: $(CMAKE_INPUTS) | deps
	@cmake --preset release

clean:
	rm -rf build build-asan build-tsan build-portable
