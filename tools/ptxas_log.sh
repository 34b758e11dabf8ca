#!/bin/bash
# A compiler launcher for nvcc that keeps what ptxas says of each file's kernels (registers, stack, spills) beside
# the build, where tools/ptxas_check.py reads it:   ptxas_log.sh DIRECTORY [ccache] nvcc ARGUMENTS...
directory=$1
shift
source=
for word in "$@"; do
  case "$word" in *.cu) source=$word ;; esac
done
if [ -z "$source" ]; then exec "$@"; fi
mkdir -p "$directory"
log=$directory/$(basename "$source").log
"$@" 2> "$log.new"
status=$?
grep -v -E "^ptxas info|bytes stack frame|^ *0 bytes|^$|^tmpxft" "$log.new" >&2
mv "$log.new" "$log"
exit $status
