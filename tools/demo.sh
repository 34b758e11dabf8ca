#!/bin/bash
# The demonstration: the pocket model (models/README.md) writes text with slots for 12 of each layer's 32 experts, in a
# budget below what the whole file and its context would take; then the ledger of that run. Text is on stdout, the
# rest on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

model=models/pocket-moe-q4.gguf
slots=12
experts=32
memory=32MiB
prompt=$'NAME\ngrep - print lines that match patterns\n\nDESCRIPTION\n'

bytes=$(stat -c %s "$model")
echo "model file: $model, $bytes bytes; budget: $memory; expert slots: $slots of $experts a layer" >&2
command=(build/weir run -m "$model" -p "$prompt" -n 96 -c 512 --seed 1 --temp 0.6 --top-p 0.9 --repeat-penalty 1.1
  --memory "$memory" --expert-slots "$slots" --ledger 32)
printf '$' >&2
printf ' %q' "${command[@]}" >&2
printf '\n\n' >&2

shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
"${command[@]}" | tee "$shown"
if ! grep -q '[^[:space:]]' "$shown"; then
  echo "demo: the run printed no text" >&2
  exit 1
fi
echo >&2
echo "model file: $bytes bytes; budget: $memory; expert slots: $slots of $experts a layer" >&2
