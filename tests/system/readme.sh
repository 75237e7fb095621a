#!/bin/sh
# readme.sh BUILD: does the quick start of README.md work as it stands, and are the configurations good? Its
# lines run in a folder in which build/ is BUILD, with the host backend in the place of a GPU and the demo's program in that of
# PyTorch.
set -eu
export LC_ALL=C
unset FRMPS_RECOVERY FRMPS_SHIM_DIR

build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
server=
clean_up() {
	[ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" || true; }
	rm -rf "$scratch"
}
trap clean_up EXIT

fail() {
	echo "readme.sh: $1" >&2
	cat "$scratch"/*.log >&2
	exit 1
}

# Configurations of the documents are good ones.
awk -v to="$scratch/conf" '/^```ini$/ { on = ++count; next } /^```$/ { on = 0 } on { print >(to on) }' "$root/README.md" "$root/server/README.md"
[ -s "$scratch/conf1" ] || fail "no document has a configuration"
for file in "$scratch"/conf*; do
	"$build/server/frmps-server" --check-config="$file" >"$scratch/check.log" 2>&1 || fail "a configuration is wrong"
done

# The first code block of the section, with what stands for the GPU and for PyTorch.
sed -n '/^## Quick start/,/^## /p' "$root/README.md" | awk '/^```sh$/ { on = 1; next } /^```$/ { if (on) exit } on' |
	sed -e 's|[[:space:]]*#.*||' -e "s|frmps-server|& --config /dev/null --backend host|" -e 's|python3 train.py|build/server/demo_worker trainer 1|' \
		>"$scratch/lines"
[ "$(wc -l <"$scratch/lines")" -eq 3 ] || fail "the quick start has not three lines"

cd "$scratch"
ln -s "$build" build
export FRMPS_SOCKET="$scratch/frmps.sock" FRMPS_DEMO_MODULE="$build/tests/host/demo_host_module.so"
eval "$(sed -n 1p lines | sed 's|&$|>server.log 2>\&1 \&|')"
server=$!
until build/server/frmpsctl ping 2>/dev/null; do
	kill -0 "$server" 2>/dev/null || fail "the service does not start"
	sleep 0.1
done
eval "$(sed -n 2p lines)" >program.log 2>&1 || fail "the program fails"
eval "$(sed -n 3p lines)" >status.log 2>&1 || fail "frmpsctl status fails"
grep -q 'ready' status.log || fail "frmpsctl status does not say that the service is ready"
