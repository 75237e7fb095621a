#!/bin/sh
# tests/run.sh: builds frmps and runs every test that needs no GPU. On Debian and its relatives missing packages are
# installed first (as root, or with sudo). Three builds beside the sources: build (everything), build-asan (address and
# undefined behaviour), build-tsan (the shared words of ring, doorbell and timelines). Says all the time what it does, and
# ends with a summary, whose last line counts tests over all builds; exit status 0 only if none failed.
set -u
export LC_ALL=C

[ $# -eq 0 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tests/lib/build.sh
install_packages
rm -rf "$scratch"
exec python3 -B tests/lib/run.py
