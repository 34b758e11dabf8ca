#!/bin/bash
# Everything that needs a GPU, in one go, failing fast: tests, sanitizer, verify, the instrument, benchmarks; a table last.
#
#   tools/gpu_check.sh [--build DIR] [--model FILE] [--out DIR] [--only STAGE,...]
#     --build DIR   binaries built elsewhere (cmake --preset portable); default: builds build-portable here
#     --model FILE  the model of the benchmarks; default: made in the temporary directory, 17.3 GB
#     --out DIR     keeps every log there; default: a temporary directory
#     --only        some of: tests sanitizer code verify instrument bench
set -euo pipefail
cd "$(dirname "$0")/.."
build="" model="" out="" only="tests code verify sanitizer bench instrument"
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2 ;;
    --model) model=$2 ;;
    --out) out=$2 ;;
    --only) only=${2//,/ } ;;
    *)
      sed -n '2,8p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done
python=python3
[ -x /usr/bin/python3 ] && /usr/bin/python3 -c 'import numpy' 2>/dev/null && python=/usr/bin/python3
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "gpu_check.sh: no GPU here (nvidia-smi -L): expected a machine with one" >&2
  exit 2
fi
out=${out:-$(mktemp -d)}
mkdir -p "$out"
if [ -z "$build" ]; then
  build=build-portable
  cmake --preset portable >"$out/configure.log" && ninja -C $build weir test_cuda_gpu >"$out/build.log"
fi
weir=$build/weir
gpu_tests=$build/tests/test_cuda_gpu
table=$out/table.txt
: >"$table"
row() { printf '%-46s %s\n' "$1" "$2" | tee -a "$table"; }
wanted() { case " $only " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
begin_stage() { echo "== $1 ($SECONDS s)"; }
missed=""
fail() {
  echo "gpu_check.sh: $1" >&2
  tail -30 "$2" >&2
  exit 1
}

# A skipped test has tested nothing, and gtest passes all the same; on a GPU none has a reason to be skipped.
none_skipped() { # none_skipped LOG: of gtest, whose last lines count them in brief mode too
  ! grep -qF '[  SKIPPED ]' "$1" || fail "GPU tests were skipped: can CUDA use the GPU?" "$1"
}

row "GPU" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"

pocket=models/pocket-moe-q4.gguf
if wanted tests; then
  begin_stage "tests"
  $gpu_tests --gtest_brief=1 >"$out/tests.log" 2>&1 || fail "a GPU test failed" "$out/tests.log"
  none_skipped "$out/tests.log"
  row "test_cuda_gpu" "$(grep -E '\[  PASSED' "$out/tests.log" | tail -1)"
fi

if wanted code; then
  begin_stage "machine code"
  # Only kernels that can begin a role may read the clock (tools/stamp_check.py knows which those are).
  cuobjdump --dump-sass "$weir" >"$out/sass.txt" 2>"$out/sass.log" || fail "cuobjdump failed" "$out/sass.log"
  $python tools/stamp_check.py "$out/sass.txt" >"$out/code.log" 2>&1 || fail "a kernel reads the clock that should not, or none that should" "$out/code.log"
  row "machine code" "$(tail -1 "$out/code.log")"
  rm -f "$out/sass.txt"
fi

if wanted verify; then
  begin_stage "verify"
  $weir verify -m $pocket --device cuda:0 -n 8 >"$out/verify.log" 2>&1 ||
    fail "weir verify found a difference" "$out/verify.log"
  grep -q '^[1-9][0-9]* cells, 0 different, 0 skipped$' "$out/verify.log" ||
    fail "weir verify skipped a cell" "$out/verify.log"
  row "weir verify, pocket model" "$(grep cells, "$out/verify.log")"
fi

# sanitize TOOL WHAT COMMAND...: no error, no warning, no skipped test. One after another: side by side they take
# longer, and a benchmark beside one would measure it.
sanitize() {
  local tool=$1 what=$2 log=$out/$1-$2.log
  shift 2
  if ! timeout 240 compute-sanitizer --tool "$tool" --error-exitcode 9 "$@" >"$log" 2>&1; then
    if grep -q "Device not supported\|LibraryNotLoaded" "$log"; then
      row "compute-sanitizer $tool, $what" "not available on this machine"
      return
    fi
    fail "compute-sanitizer $tool found something" "$log"
  fi
  none_skipped "$log"
  ! grep "Warning: " "$log" >"$log.warnings" || fail "compute-sanitizer $tool warns" "$log.warnings"
  row "compute-sanitizer $tool, $what" "$(grep 'SUMMARY' "$log" | tail -1)"
}
if wanted sanitizer; then
  begin_stage "compute-sanitizer"
  for tool in memcheck racecheck; do
    sanitize $tool run $weir run -m $pocket --device cuda:0 -p "The command line tool reads a file and" -n 4 --greedy
    # Kernels that the pocket model's widths do not reach are in the tests.
    sanitize $tool kernels $gpu_tests --gtest_brief=1 \
      --gtest_filter='CudaExperts.*:CudaExpertsSlow.*:*AfterRouterAtEveryWidth*:CudaRoute.*:SmallExperts.*:*FusedAttention*d128*:*FusedAttention*h3of1d256*:*TheNormInside*:*SeveralWeightsOverOneInput*'
  done
fi

if wanted bench || wanted instrument; then
  if [ -z "$model" ]; then
    model=${TMPDIR:-/tmp}/m30.gguf
    [ -f "$model" ] || $python tools/make_gguf.py qwen3moe-30b-a3b "$model" >"$out/model.log" 2>&1 || fail "make_gguf.py failed" "$out/model.log"
  fi
fi

if wanted bench; then
  begin_stage "benchmarks"
  $weir bench -m "$model" --device cuda:0 -p 512,4096 -n 128 -r 5 --lanes 1,4,16 --depth 0,512,4096,16384,32512 --json \
    >"$out/bench.json" 2>"$out/bench.log" || fail "weir bench failed" "$out/bench.log"
  $python tools/gpu_table.py bench "$out/bench.json" | tee -a "$table"
fi

if wanted instrument; then
  begin_stage "instrument"
  # Openings of one model are not equally fast, and two lengths are two recordings: each judged by itself.
  instrument() { # instrument NAME ROUNDS ARGUMENTS...
    local name=$1 rounds=$2
    shift 2
    $weir bench -m "$model" --device cuda:0 -p 0 -r 1 --ledger-cost "$rounds" "$@" --ledger-json "$out/ledger.json" --json \
      >"$out/cost.json" 2>"$out/cost.log" || fail "weir bench --ledger-cost failed" "$out/cost.log"
    $python tools/gpu_table.py cost "$out/cost.json" "$name" | tee -a "$table" || missed="$missed, $name"
  }
  for opening in 1 2 3; do
    for arithmetic in fast portable; do
      instrument "128 tokens, $arithmetic, opening $opening" 30 -n 128 --arithmetic $arithmetic
      instrument "512 tokens, $arithmetic, opening $opening" 10 -n 512 --arithmetic $arithmetic
    done
  done
  $weir bench -m "$model" --device cuda:0 -p 512 -n 128 -r 2 --ledger-json "$out/ledger.json" --json >"$out/roles.json" 2>"$out/cost.log" ||
    fail "weir bench failed" "$out/cost.log"
  $python tools/gpu_table.py ledger "$out/ledger.json" | tee -a "$table"
fi
echo "== all of it in $SECONDS s; logs in $out"
cat "$table"
if [ -n "$missed" ]; then
  echo "gpu_check.sh: the ledger's cost is not within 0.5 %: ${missed#, }" >&2
  exit 1
fi
