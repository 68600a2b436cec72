#!/usr/bin/env bash
# fuzz.sh [SECONDS [BUDGET [HOSTILE]]]: runs each fuzz target of the module for SECONDS (10). If that
# came to more than BUDGET seconds (480) in all, each gets its share of them, but at least two. Those
# of peers that have credentials, FuzzHostile..., have HOSTILE seconds (40) each besides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# To list what a package has builds its tests: only those of packages that have targets.
packages=$(git grep --untracked -lE '^func Fuzz' -- '*_test.go' ':!bench' | sed 's,^,./,; s,/[^/]*$,,' | sort -u)
targets=$(go test -vet=off -list '^Fuzz' $packages | awk '
	/^Fuzz/ { name[n++] = $1; next }
	$1 == "ok" { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }')
if [ -z "$targets" ]; then
	echo "no fuzz targets yet"
	exit 0
fi
count=$(grep -vc ' FuzzHostile' <<<"$targets" || true)
seconds=${1:-10} budget=${2:-480} hostile=${3:-40}
if [ $((count * seconds)) -gt "$budget" ]; then seconds=$((budget / count)); fi
if [ "$seconds" -lt 2 ]; then seconds=2; fi

# Several goroutines make what an input covers a matter of chance, and making it smaller takes for ever.
one() { go test -vet=off -run '^$' -fuzz "^$2\$" -fuzztime "${time}s" -fuzzminimizetime 20x "$1" 2>&1; }

while read -r package name; do
	time=$seconds
	if [[ $name == FuzzHostile* ]]; then time=$hostile; fi
	echo "$package $name (${time}s)"
	if ! out=$(one "$package" "$name"); then
		# At the end of its time the engine sometimes takes its own deadline for a failure of the
		# target. A real failure leaves an input behind, which the next run meets first.
		if [[ $out == *"context deadline exceeded"* && $out != *"Failing input written"* ]] &&
			out=$(one "$package" "$name"); then
			continue
		fi
		printf '%s\n' "$out"
		exit 1
	fi
done <<<"$targets"
