#!/bin/sh
# text.sh: makes text_ptx.inc from text.cu. Needs nvcc 13; the oldest driver and device that it is said to be for are
# older, as nothing in it is new.
set -eu
cd "$(dirname "$0")"
{
	cat <<'END'
// text.cu as text.sh compiled it. Not to be edited.

END
	nvcc -arch=sm_75 -rdc=true -ptx -O3 -o - text.cu |
		sed -e '/^[[:space:]]*\/\//d' -e '/^[[:space:]]*$/d' -e 's/^\.version.*/.version 7.0/' -e 's/^\.target.*/.target sm_70/' |
		tr '\t' ' ' | sed -e 's/frmps_vprintf/vprintf/g' -e 's/frmps_assertfail/__assertfail/g' -e 's/  */ /g' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/'
} >text_ptx.inc
