#!/bin/sh
# overlay.sh DIR: writes DIR/overlay.json, for `go build -overlay`, and the file that it puts in the
# place of the runtime's table of signals. Without _SigUnblock on CHLD (17), PROF (27) and 34 the
# runtime's threads keep these blocked. URG (23) needs no change without asynchronous preemption.
set -eu
dir=$(cd "$1" && pwd)
mkdir -p "$dir/.runtime" # the dot hides its package from ./...
file=$("${GO:-go}" env GOROOT)/src/runtime/sigtab_linux_generic.go
mine=$dir/.runtime/sigtab_linux_generic.go

sed -e 's|\(/\* 17 \*/ {_SigNotify\) + _SigUnblock \(+ _SigIgn, "SIGCHLD\)|\1 \2|' \
	-e 's|\(/\* 27 \*/ {_SigNotify\) + _SigUnblock\(, "SIGPROF\)|\1\2|' \
	-e 's|\(/\* 34 \*/ {_SigSetStack\) + _SigUnblock\(, "signal 34"\)|\1\2|' "$file" >"$mine"
changed=$(diff "$file" "$mine" | grep -c '^<' || true)
if [ "$changed" -ne 3 ]; then
	echo "overlay.sh: $file has $changed of the three flags of CHLD, PROF and 34 where they were:" \
		"look at its table and change the patterns here" >&2
	rm -f "$mine"
	exit 1
fi
printf '{"Replace": {"%s": "%s"}}\n' "$file" "$mine" >"$dir/overlay.json"
