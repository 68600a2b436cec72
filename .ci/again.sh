#!/usr/bin/env bash
# again.sh LOG FLAG...: runs the tests that failed in LOG, the output of "go test -v ./...", three
# times more, alone, with the same flags. It passes if all of them do: then a busy machine, and not
# the change, made them fail. A race, a panic, a time limit and more than three failures stay failures.
set -euo pipefail
log=$1
shift
most=3 times=3
if grep -E 'DATA RACE|^(panic|fatal error|SIG[A-Z]+):|test timed out|\[(build|setup) failed\]' "$log"; then
	echo "this is not run again"
	exit 1
fi
# The names stand before their package's line.
failed=$(awk -F'[: \t]+' '
	/^--- FAIL: / { names[++n] = $3 }
	/^(ok|FAIL)\t/ { if ($1 == "FAIL" && n == 0) print $2, "-"; for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }
' "$log")
if [ -z "$failed" ] || [ "$(wc -l <<<"$failed")" -gt $most ] || grep -q ' -$' <<<"$failed"; then
	printf 'these are not run again:\n%s\n' "$failed"
	exit 1
fi
while read -r package name; do
	echo "again, alone: $name of $package"
	go test -v -count=$times -timeout 900s "$@" -run "^$name\$" "$package" >"$log.again" 2>&1 || { cat "$log.again"; exit 1; }
	[ "$(grep -cE "^--- PASS: $name( |\$)" "$log.again")" -eq $times ] || { echo "it did not run $times times"; exit 1; }
	echo "UNSTEADY: $name of $package failed among all tests, and passed $times times alone" | tee -a "$log.unsteady"
done <<<"$failed"
