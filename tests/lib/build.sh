#!/bin/sh
# Setting a machine up and configuring a build folder: what tests/run.sh and server/demo.sh share. Sourced; wants $scratch,
# a folder for logs.

packages='gcc g++ meson ninja-build pkg-config libuv1-dev check libsubunit-dev flatbuffers-compiler libflatbuffers-dev
libinih-dev libjansson-dev liblz4-dev libzstd-dev libmicrohttpd-dev libxxhash-dev groff-base'

install_packages() {
	command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 0
	missing=
	for package in $packages; do
		dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' ||
			missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	echo "installing:$missing"
	as_root=
	if [ "$(id -u)" -ne 0 ]; then
		as_root=sudo
		command -v sudo >/dev/null || {
			echo "that needs root, and there is no sudo; as root: apt-get install$missing" >&2
			echo "trying without these packages" >&2
			return 0
		}
	fi
	export DEBIAN_FRONTEND=noninteractive
	{
		$as_root apt-get update -qq
		# shellcheck disable=SC2086
			$as_root apt-get install -y -qq --no-install-recommends $missing
	} >"$scratch/apt" 2>&1 || {
		tail -n 20 "$scratch/apt" >&2
		echo "the packages could not be installed; trying without" >&2
	}
}

# Brings a build folder up, from whatever state it is in.
configure() { # configure FOLDER OPTIONS...
	folder=$1
	shift
	if [ -f "$folder/build.ninja" ]; then
		meson setup --reconfigure "$@" "$folder" && return
		meson setup --wipe "$@" "$folder" && return
	fi
	rm -rf "$folder"
	meson setup "$@" "$folder"
}
