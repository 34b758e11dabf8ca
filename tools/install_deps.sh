#!/bin/sh
# Installs the Debian packages that building and testing need: only what is missing, and not a word where all is
# there. Root installs directly, anyone else through sudo.
set -eu

# clang-format is pinned: another version formats differently and the format check would fail.
packages="g++ cmake ninja-build ccache pkg-config clang-format-14 python3 python3-numpy libfmt-dev nlohmann-json3-dev
libcli11-dev liburing-dev libpcre2-dev libgtest-dev libgmock-dev libbenchmark-dev"

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "weir: this is not Debian: install by hand what these packages hold:" $packages >&2
  exit 0
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo"
else
  # On a fresh machine apt knows no package before the update.
  echo "weir: cannot install packages as $(id -un) without sudo; as root run: apt-get update &&" \
    "apt-get install -y --no-install-recommends$missing" >&2
  exit 1
fi

echo "weir: installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as_root apt-get update -q && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
  --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "weir: apt-get could not install$missing (its last lines are above)" >&2
  exit 1
fi
