#!/bin/bash
# Runs the tests of a configured tree and ends with one line, "N passed, 0 failed", over GoogleTest's own counts.
#
#   tools/run_tests.sh fast    the label `fast` of build/
#   tools/run_tests.sh all     both labels of build/, the demo, then `fast` under ASan+UBSan and under TSan
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-fast}
python=/usr/bin/python3
jobs=$(nproc)
failed_stages=""
launcher=""

stage() { # stage NAME COMMAND...: a failed stage is remembered, the others still run
  local name=$1 begin=$SECONDS
  shift
  echo "== $name"
  if "$@"; then
    echo "== $name: $((SECONDS - begin)) s"
  else
    failed_stages="$failed_stages, $name"
    echo "== $name: FAILED after $((SECONDS - begin)) s"
  fi
}

run_ctest() { # run_ctest BUILD_DIR CTEST_ARGUMENTS...
  local build=$1
  shift
  rm -rf "$build/test-results"
  $launcher ctest --test-dir "$build" --output-on-failure --no-tests=error -j "$jobs" "$@"
}

sanitized() { # sanitized PRESET: configures, builds and runs the fast tests
  local launcher=""
  # ThreadSanitizer's memory layout does not survive high-entropy address randomisation on newer kernels.
  if [ "$1" = tsan ] && setarch -R true 2>/dev/null; then launcher="setarch -R"; fi
  cmake --preset "$1" >/dev/null && ninja -C "build-$1" --quiet && run_ctest "build-$1" -L '^fast$'
}

export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1}

builds="build"
case "$what" in
fast) stage "fast tests" run_ctest build -L '^fast$' ;;
all)
  stage "tests" run_ctest build
  stage "demo" tools/demo.sh
  stage "fast tests, ASan+UBSan" sanitized asan
  stage "fast tests, TSan" sanitized tsan
  builds="build build-asan build-tsan"
  ;;
*)
  echo "usage: tools/run_tests.sh fast|all" >&2
  exit 2
  ;;
esac

$python tools/count_tests.py $builds || failed_stages="$failed_stages, counted tests"
if [ -n "$failed_stages" ]; then
  echo "failed: ${failed_stages#, }"
  exit 1
fi
