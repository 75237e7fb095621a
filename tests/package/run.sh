#!/bin/sh
# tests/package/run.sh [BUILD]: builds the Debian package and tries it on a Debian 12 that has nothing else: a fresh system
# in a folder, started with its own systemd in a container. BUILD is a build folder with the test programs (default: build).
# Needs root, and Debian's archive as this machine is configured to reach it. Exit status 0: all is well.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../.."
build=${1:-build}
[ "$(id -u)" -eq 0 ] || { echo "needs root" && exit 77; }
for file in stepper host_kernels.so; do
	[ -e "$build/tests/$file" ] || { echo "$build/tests/$file is missing: build first" && exit 1; }
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck source=/dev/null
. tests/lib/build.sh
# shellcheck disable=SC2034
packages='lintian mmdebstrap systemd-container'
install_packages

inside="$scratch/inside"
mkdir "$inside"
cp tests/package/inside.sh "$build/tests/stepper" "$build/tests/host_kernels.so" \
	"$build/tests/host/host_backend.so" "$inside"
server/debian/build.sh "$scratch"
mv "$scratch"/frmps_*.deb "$inside/first.deb"
# Who builds a package says who is responsible for it (DEBEMAIL); here nobody does.
lintian --allow-root --fail-on error,warning \
	--suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,root-in-contact "$inside/first.deb"

# A later version of the same.
dpkg-deb -R "$inside/first.deb" "$scratch/second"
tests/contract/symbols.sh "$scratch/second/usr/lib/frmps/libcuda.so.1" "$scratch/second/usr/sbin/frmps-server"
sed -i 's/^Version: .*/&.1/' "$scratch/second/DEBIAN/control"
dpkg-deb --root-owner-group -b "$scratch/second" "$inside/second.deb" >/dev/null

# The new system reaches the archive as this one does.
root="$scratch/root"
apt-config dump | grep '^Acquire::' >"$scratch/apt.conf"
sources=$(find /etc/apt -maxdepth 2 -name '*.sources' -o -maxdepth 2 -name '*.list')
# shellcheck disable=SC2086
mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,systemd-sysv --aptopt="$scratch/apt.conf" \
	bookworm "$root" $sources >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
mv "$inside" "$root/frmps-test"
cat >"$root/etc/systemd/system/frmps-test.service" <<'UNIT'
[Unit]
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Type=oneshot
ExecStart=/bin/sh -c '/bin/sh /frmps-test/inside.sh >/frmps-test/log 2>&1; echo $? >/frmps-test/status'

[Install]
WantedBy=multi-user.target
UNIT
ln -s ../frmps-test.service "$root/etc/systemd/system/multi-user.target.wants/"

timeout -k 10 300 systemd-nspawn --quiet --register=no --keep-unit --boot -D "$root" \
	</dev/null >"$scratch/console" 2>&1 || true
cat "$root/frmps-test/log" 2>/dev/null || cat "$scratch/console"
[ "$(cat "$root/frmps-test/status" 2>/dev/null)" = 0 ] || { echo "the package failed" && exit 1; }
