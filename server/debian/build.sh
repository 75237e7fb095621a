#!/bin/sh
# server/debian/build.sh [FOLDER]: builds the Debian package of this tree into FOLDER (default: build-debian, beside the
# sources), and its debugging symbols. Installs the packages that this needs first. The tree is left alone: everything
# happens in a copy of it, because Debian's tools want the folder debian at its top.
#
# The version is that of meson.build and the time of the latest commit. DEBFULLNAME and DEBEMAIL, as with Debian's own
# tools, say who is responsible for the package. This package runs no tests: tests/run.sh does, tests/package/run.sh those
# of the package itself.
set -eu
export LC_ALL=C
top=$(cd "$(dirname "$0")/../.." && pwd)
target=${1:-$top/build-debian}
mkdir -p "$target"
target=$(cd "$target" && pwd)
cd "$top"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

. tests/lib/build.sh
packages="$packages dpkg-dev debhelper"
install_packages

version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" meson.build)
time=$(git log -1 --format=%ct 2>/dev/null || date +%s)
version="$version+$(date -u -d "@$time" +%Y%m%d%H%M%S)"
maintainer="${DEBFULLNAME:-local build} <${DEBEMAIL:-root@localhost}>"

tree="$scratch/frmps-$version"
mkdir "$tree"
tar -c --exclude=./.git --exclude='./build*' --exclude=./.cache . | tar -x -C "$tree"
cp -r server/debian "$tree/debian"
rm "$tree/debian/build.sh"
sed -i "s|@MAINTAINER@|$maintainer|" "$tree/debian/control"
cat >"$tree/debian/changelog" <<CHANGELOG
frmps ($version) unstable; urgency=medium

  * Built from the project's own tree.

 -- $maintainer  $(date -u -R -d "@$time")
CHANGELOG

(cd "$tree" && dpkg-buildpackage -b -us -uc) >"$scratch/log" 2>&1 || {
	tail -n 40 "$scratch/log" >&2
	echo "the package does not build" >&2
	exit 1
}
for package in "$scratch"/*.deb; do
	cp "$package" "$target"
	echo "$target/$(basename "$package")"
done
