#!/bin/sh
# install.sh BUILD PREFIX STEPPER MODULE: does what `meson install` brings work where it lies? Installs a build folder below a
# scratch folder. Looks whether files are missing or lie outside the prefix. Starts the installed service, with the sample
# configuration and every key of it in force, as the units do; a program goes through it with the installed frmps-run.
set -eu
export LC_ALL=C
build=$1 prefix=$2 stepper=$3 module=$4

scratch=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$scratch"' EXIT

fail() {
	echo "install.sh: $*" >&2
	[ ! -e "$scratch/log" ] || cat "$scratch/log" >&2
	exit 1
}

DESTDIR="$scratch/root" meson install -C "$build" --no-rebuild >"$scratch/log" 2>&1 || fail "meson install failed"
rm "$scratch/log"
cd "$scratch/root$prefix"

for file in sbin/frmps-server bin/frmps-run bin/frmpsctl lib/frmps/libcuda.so.1 lib/frmps/nvml/libnvidia-ml.so.1 lib/frmps/mps/nvidia-cuda-mps-control share/doc/frmps/examples/frmps.conf \
	share/pkgconfig/frmps.pc lib/systemd/system/frmps-server.service lib/systemd/system/frmps-server@.service; do
	[ -f "$file" ] || fail "$prefix/$file is missing"
done
[ -z "$(find . -name '*host*')" ] || fail "the host backend is installed, which runs programs' code"
outside=$(find "$scratch/root" ! -type d ! -path "$PWD/*")
[ -z "$outside" ] || fail "outside the prefix: $outside"

shim=$(PKG_CONFIG_PATH=share/pkgconfig pkg-config --variable=shimdir frmps)
[ -f "$scratch/root$shim/libcuda.so.1" ] || fail "frmps.pc names $shim, where the shim is not"

# What the units start is there, and takes the options that they give.
for unit in frmps-server frmps-server@; do
	command=$(sed -n 's/^ExecStart=//p; ' "lib/systemd/system/$unit.service")
	grep -q '@[a-z_]*@' "lib/systemd/system/$unit.service" && fail "$unit: a name was not replaced"
	[ -x "$scratch/root${command%% *}" ] || fail "$unit: there is no ${command%% *}"
done
options=$(echo "$command" | sed -e 's/^[^ ]* *//' -e 's/%i/0/g' -e "s|/run/|$scratch/|")

grep -q '^#backend = cuda$' share/doc/frmps/examples/frmps.conf || fail "the sample configuration says nothing of backend"
sed 's/^#\([a-z_]* = \)/\1/' share/doc/frmps/examples/frmps.conf >"$scratch/frmps.conf"
# An installed service finds no backend of a build folder, which is on the library path of tests.
if timeout 20 env -u LD_LIBRARY_PATH sbin/frmps-server --config /dev/null --backend host 2>"$scratch/log"; then fail "it found a backend"; fi
grep -q 'backend: host_backend.so: cannot open' "$scratch/log"
# shellcheck disable=SC2086
sbin/frmps-server --config "$scratch/frmps.conf" --backend "$build/tests/host/host_backend.so" $options 2>"$scratch/log" &
server=$!
export FRMPS_SOCKET="$scratch/frmps-0/frmps.sock"
until bin/frmpsctl status >/dev/null 2>&1; do
	kill -0 "$server" 2>/dev/null || fail "the installed service does not start"
	sleep 0.1
done

printf 'go\ngo\n' | bin/frmps-run "$stepper" "$module" >"$scratch/answers" || fail "the program failed"
[ "$(cat "$scratch/answers")" = "$(printf 'ok\nok')" ] || fail "the program's results: $(cat "$scratch/answers")"

# A program that brings another libcuda.so.1 along, in a folder that comes before LD_LIBRARY_PATH: itself, and for a script.
mkdir "$scratch/past"
cp "$stepper" "$scratch/past/program"
cp "$module" "$scratch/past/libcuda.so.1"
echo go | bin/frmps-run "$scratch/past/program" "$module" >"$scratch/answers" 2>"$scratch/log" || fail "it got past the service"
[ "$(cat "$scratch/answers")" = ok ] || fail "the program's result: $(cat "$scratch/answers")"
grep -q "would find $scratch/past/libcuda.so.1" "$scratch/log" || fail "frmps-run says nothing of another library"
echo "#!$scratch/past/program" >"$scratch/past/script"
chmod +x "$scratch/past/script"
bin/frmps-run "$scratch/past/script" 2>"$scratch/log" </dev/null || true
grep -q "program looks for libraries.* would find $scratch/past/libcuda.so.1" "$scratch/log" || fail "nothing is said of a script's program"

# Scripts of stock MPS: it lies where they find it only if they are told to.
[ ! -e bin/nvidia-cuda-mps-control ] || fail "NVIDIA's program is shadowed"
PATH="$PWD/lib/frmps/mps:$PATH"
CUDA_MPS_PIPE_DIRECTORY=/nonexistent/mps FRMPS_SOCKET='' nvidia-cuda-mps-control -f 2>"$scratch/log" && fail "it started a service"
! grep 'is not found' "$scratch/log" || fail "nvidia-cuda-mps-control does not find frmps-server"
echo quit | nvidia-cuda-mps-control || fail "the service is not told to end"
wait "$server" || fail "the service ended with $?"
server=
