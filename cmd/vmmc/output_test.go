package main

import (
	"bytes"
	"testing"
)

func TestTableShowsNoControls(t *testing.T) {
	var b bytes.Buffer
	if err := printTable(&b, [][]string{{"NAME", "COMMAND"}, {"a\x1b]0;x\ab", "é\u202e \u009b31m\nc"}, {"", `\x1b`}}); err != nil {
		t.Fatal(err)
	}
	want := "NAME          COMMAND\n" + `a\x1b]0;x\ab  é\u202e \u009b31m c` + "\n-             \\x1b\n"
	if b.String() != want {
		t.Errorf("%q, wanted %q", b.String(), want)
	}
}
