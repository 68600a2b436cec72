#!/bin/sh
# Checks the models of what was built; needs spin and gcc. Each line: what should hold, or which
# variant should be found broken.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
check() { # WANT FLAGS...
	want=$1
	shift
	(cd "$dir" && spin -a "$@" "$OLDPWD/handoff.pml" >/dev/null && gcc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c && ./pan -m300000 >out)
	got=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$dir/out")
	case "$want:$got" in ok:0 | broken:[1-9]*) echo "as it should be ($want): handoff $*" ;; *) echo "handoff $*: $got errors, want $want"; exit 1 ;; esac
}
check ok -DNOREPL -DSTREAM_ONLY
check ok -DNOREPL -DONE_EACH
check ok -DNOREPL -DONE_EACH -DARM_ALWAYS
check broken -DNOREPL -DSTREAM_ONLY -DNO_GUARD
check broken -DNOREPL -DONE_EACH -DNO_GUARD
check broken -DNOREPL -DSTREAM_ONLY -DNO_MISSED
