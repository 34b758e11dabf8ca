#!/bin/bash
# The demonstration: the pocket model (models/README.md) writes text in a budget below the size of its file, so that
# fewer than half of its experts have a slot; then the ledger of that run. Text is on stdout, the rest on stderr.
set -euo pipefail
cd "$(dirname "$0")/.."

model=models/pocket-moe-q4.gguf
memory=20MiB
prompt=$'NAME\ngrep - print lines that match patterns\n\nDESCRIPTION\n'

bytes=$(stat -c %s "$model")
printf 'model file: %s, %s bytes; budget: %s\n' "$model" "$bytes" "$memory" >&2
command=(build/weir run -m "$model" -p "$prompt" -n 96 -c 256 --seed 1 --temp 0.6 --top-p 0.9 --repeat-penalty 1.1
  --memory "$memory" --ledger 32)
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
printf '\nmodel file: %s bytes; budget: %s\n' "$bytes" "$memory" >&2
