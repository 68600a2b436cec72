#!/usr/bin/env bash
# again.sh LOG FLAG...: runs the tests that failed in LOG, the output of "go test -v ./...", three
# times more, alone, and then their packages whole, all with the same flags. It passes if all of that
# does: then a busy machine, and not the change, made them fail. A race, a panic, a time limit, a test
# binary that did not end by itself, and more than three failures stay failures.
set -euo pipefail
log=$1
shift
most=3 times=3
# What each package that failed has printed, and "package test" of each failure. The output of a
# package stands together, the names before its last line.
awk -v output="$log.failed" -v names="$log.names" '
	{ line[++k] = $0 }
	/^--- FAIL: / { split($0, f, /[: ]+/); name[++n] = f[3] }
	/^FAIL$/ { ended = 1 }
	/^(ok|FAIL|\?)[ \t]+[^ \t]+/ {
		if ($1 == "FAIL") {
			for (i = 1; i <= k; i++) print line[i] >output
			if (n == 0 || !ended) print $2, "-" >names
			for (i = 1; i <= n; i++) print $2, name[i] >names
		}
		k = 0; n = 0; ended = 0
	}
' "$log"
if ! [ -s "$log.names" ]; then
	echo "no package failed: this is not run again"
	exit 1
fi
if grep -E 'DATA RACE|(^|[[:space:]])(panic|fatal error|SIG[A-Z]+): |test timed out|^signal: |^\*\*\* Test |\[(build|setup) failed\]' "$log.failed"; then
	echo "this is not run again"
	exit 1
fi
if [ "$(wc -l <"$log.names")" -gt $most ] || grep -q ' -$' "$log.names"; then
	echo "these are not run again:"
	cat "$log.names"
	exit 1
fi
# alone runs a test by itself, several times: -count would run an example once.
alone() {
	for _ in $(seq $times); do
		go test -v -count=1 -timeout 900s "${@:3}" -run "^$2\$" "$1" </dev/null || return 1
	done
}

while read -r package name; do
	echo "again, alone: $name of $package"
	alone "$package" "$name" "$@" >"$log.again" 2>&1 || { cat "$log.again"; exit 1; }
	[ "$(grep -cE "^--- PASS: $name( |\$)" "$log.again")" -eq $times ] || { echo "it did not run $times times"; exit 1; }
done <"$log.names"
cut -d' ' -f1 "$log.names" | sort -u | while read -r package; do
	echo "again, whole: $package"
	go test -v -count=1 -timeout 900s "$@" "$package" </dev/null >"$log.again" 2>&1 || { cat "$log.again"; exit 1; }
done
sed "s/^\([^ ]*\) \(.*\)/UNSTEADY: \2 of \1 failed among all tests, and passed $times times alone and with its package/" "$log.names" | tee "$log.unsteady"
