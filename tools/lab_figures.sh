#!/bin/bash
# Takes the figures of docs/decode-profile.md: profiles, A/Bs and a replay curve for the pocket model and for a model in the
# shape of 16 layers of Qwen3-30B-A3B with uneven routing. On an idle machine; about fifteen minutes on two cores.
#
#   tools/make_gguf.py qwen3moe-30b-a3b m16s.gguf --layers 16 --vocab 32768 --skew 1.2
#   tools/lab_figures.sh m16s.gguf FOLDER
#
# FOLDER gets a file for each command's report; a file that exists is kept, so an interrupted run goes on.
set -uo pipefail
cd "$(dirname "$0")/.."
skewed=$1
out=$2
pocket=models/pocket-moe-q4.gguf
mkdir -p "$out"

take() { # take NAME COMMAND...: the command, then what it prints
  local name=$1
  shift
  [ -s "$out/$name" ] && return
  echo "$name: $*" >&2
  { echo "\$ $*"; "$@" 2>"$out/$name.err"; echo "exit code $?"; } >"$out/$name.partial"
  mv "$out/$name.partial" "$out/$name"
}

for memory in 28MiB 48MiB; do
  take "profile-pocket-$memory.md" build/weir profile -m "$pocket" --memory "$memory" --markdown
done
for memory in 2GiB 4GiB; do
  take "profile-m16s-$memory.md" build/weir profile -m "$skewed" --memory "$memory" -c 1024 -n 32 --prompts prompts/short.txt --markdown
done
take what-if-pocket.txt build/weir profile -m "$pocket" --memory 28MiB --what-if

ab() { # ab NAME MODEL SLOTS-AND-OTHERS A B
  take "$1.txt" build/weir ab -m "$2" $3 --prompts prompts/short.txt --pairs 12 --seed 1 --out "$out/$1.json" --a "$4" --b "$5"
}
ab ab-slots-pocket "$pocket" "-c 512 -n 128" "--expert-slots 16" "--expert-slots 32"
ab ab-policy-pocket "$pocket" "-c 512 -n 128 --expert-slots 12" "--expert-policy lfu" "--expert-policy lru"
ab ab-advice-pocket "$pocket" "-c 512 -n 128 --expert-slots 12 --io buffered" "--read-advice off" "--read-advice bounded"

take run-for-replay.txt build/weir run -m "$pocket" -f prompts/medium.txt -n 512 --ignore-eos --seed 1 --temp 0.2 --expert-slots 8 \
  --route-trace "$out/pocket.routes" --ledger-json "$out/pocket.ledger.json"
take replay-pocket.txt build/weir replay "$out/pocket.routes" --slots 4,8,12,16,24,32 --policy lfu,lru --phase decode \
  --ledger-json "$out/pocket.ledger.json"
take replay-curve.txt build/weir replay "$out/pocket.routes" -m "$pocket" --slots 4,6,8,10,12,14,16,18,20,22,24,26,28,30,32 \
  --phase decode --svg "$out/replay-pocket.svg"
ab ab-slots-m16s "$skewed" "-c 512 -n 16" "--expert-slots 16" "--expert-slots 32"
