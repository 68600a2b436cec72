#!/usr/bin/env bash
# skips.sh LOG...: the tests that were skipped, from logs of `go test -v`. A line is
# "package Test: reason"; only what was skipped in each of the logs counts as never run.
set -euo pipefail

# The reason is the last line a test logged. Test results of one package stand together, and the
# package's own line ends them.
list() {
	awk '
		/^=== (RUN|NAME|CONT|PAUSE) / { test = $3; next }
		/^ +--- SKIP: |^--- SKIP: / {
			sub(/^ *--- SKIP: /, "")
			name = $1
			skipped[name] = (name in said) ? said[name] : "no reason given"
			next
		}
		/^(ok|FAIL)[ \t]+[^ \t]+\// {
			for (name in skipped) print $2 " " name ": " skipped[name]
			delete skipped; delete said; test = ""
			next
		}
		/^ +[A-Za-z0-9_.-]+\.go:[0-9]+: / {
			sub(/^ +[^ ]+ /, "")
			if (test != "") said[test] = $0
		}
	' "$1" | sort -u
}

key() { cut -d: -f1 | sort -u; }

never=$(list "$1" | key)
for log in "${@:2}"; do
	never=$(comm -12 <(printf '%s\n' "$never") <(list "$log" | key))
done
[ -n "$never" ] || exit 0
list "$1" | while IFS= read -r line; do
	if grep -qxF -- "${line%%:*}" <<<"$never"; then printf '%s\n' "$line"; fi
done
