package cgroup

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/mount"
)

func TestLocate(t *testing.T) {
	hybrid := []mount.Point{{Type: "cgroup", Root: "/", At: "/sys/fs/cgroup/cpu"}, {Type: "cgroup2", Root: "/", At: "/sys/fs/cgroup/unified"}}
	part := []mount.Point{{Type: "cgroup2", Root: "/pod/x", At: "/sys/fs/cgroup"}}
	for _, c := range []struct {
		own    string
		points []mount.Point
		want   string // "": none
	}{
		{"1:cpu:/\n0::/\n", hybrid, "/sys/fs/cgroup/unified"},
		{"0::/system.slice/vmmcd.service\n", hybrid, "/sys/fs/cgroup/unified/system.slice/vmmcd.service"},
		{"0::/pod/x/y\n", part, "/sys/fs/cgroup/y"},
		{"0::/pod/xy\n", part, ""},
		{"0::/../other\n", hybrid[:1], ""},
		{"1:cpu:/\n", hybrid, ""},
	} {
		if got, err := locate(c.own, c.points); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q is %q (%v), want %q", c.own, got, err, c.want)
		}
	}
}
