#!/usr/bin/env bash
# digest.sh LOG: what failed in LOG, the output of "go test -v", in at most 1,200 characters, for the end
# of a run, which is all that some readers get to see: the tests, and for each race, panic and time
# limit the project's first places in the stacks.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
awk -v root="$root/" '
	function put(s) { if (!(s in seen)) { seen[s] = 1; print substr(s, 1, 160) } }
	/^ *--- FAIL: / { put("FAIL " $3) }
	/^FAIL[ \t]+[^ \t]+/ { put("FAIL in " $2) }
	# A stack that is of interest begins; two places of each are told.
	/WARNING: DATA RACE|^panic: |^fatal error: |^\*\*\* Test |panic: test timed out/ { put($0); left = 2; stacks = 3 }
	/^(Previous )?([Ww]rite|[Rr]ead) at / { put("  " $1 " " $2); left = 2 }
	/^Goroutine .* (created|running)|^=+$/ { left = 0 }
	/^goroutine [0-9]+ .*:$/ { left = stacks-- > 0 ? 2 : 0 }
	left > 0 && index($0, root) { sub(/^[ \t]+/, ""); sub(/ \+0x.*/, ""); put("  " substr($0, length(root) + 1)); left-- }
	# What ended a sequence of the model, which says much before it.
	/^ *FAILED: / { sub(/^ +/, ""); put("  " $0) }
	# What a test said, at its first line of a file.
	/^ +[a-z0-9_]+_test\.go:[0-9]+: / && said < 4 { line = $0; sub(/^ +/, "", line); last = line }
	/^ *--- FAIL: / { if (last != "") { put("  " last); said++ }; last = "" }
	/^ *--- (PASS|SKIP): |^=== RUN/ { last = "" }
' "$1" | head -c 1200
