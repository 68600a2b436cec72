package cfgvmmc

import (
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFromDirectory(t *testing.T) {
	for _, c := range []struct{ directory, program, want string }{
		{"/", "/bin/test.exe", "./bin/test.exe"},
		{"/bin", "test.exe", "./test.exe"},
		{"/bin/", "/bin/test.exe", "./../bin/test.exe"},
		{"/a//b/.", "//c", "./../../c"},
		{"/", "sub/x", "./sub/x"},
		{"/a", "../b", "./../b"}, // the node says where that leads
	} {
		if got := fromDirectory(c.directory, c.program); got != c.want {
			t.Errorf("%s from %s is %s, wanted %s", c.program, c.directory, got, c.want)
		}
	}
}

// The way from any directory leads to the place that was named.
func TestFromDirectoryLeadsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`/[a-c/]{0,8}`)
		directory, program := text.Draw(t, "directory"), text.Draw(t, "program")
		if got := path.Join(directory, fromDirectory(directory, program)); got != path.Clean(program) {
			t.Fatalf("it leads to %s", got)
		}
	})
}

func TestNames(t *testing.T) {
	for in, want := range map[string][]string{
		"./test":        {"./test"},
		"./test.exe":    {"./test.exe", "./test"},
		"./TEST.EXE":    {"./TEST.EXE", "./TEST"},
		"./b/start.bat": {"./b/start.bat", "./b/start"},
		"./.exe":        {"./.exe"}, // nothing is left without it
		"./x.exe.sh":    {"./x.exe.sh"},
	} {
		if got := names(in); !slices.Equal(got, want) {
			t.Errorf("%s may be %q, wanted %q", in, got, want)
		}
	}
}
