package cfgvmmc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/root"
)

// What stands in for flags that are the same each time.
const (
	hostsEnv = "VMMC_HOSTS_FILE"
	certsEnv = "VMMC_CERTS"
)

// where is how nodes are asked, as far as the caller says so.
type where struct {
	hosts, certs, socket string

	of *cobra.Command
}

func (w *where) add(c *cobra.Command) {
	w.of = c
	c.Flags().StringVar(&w.hosts, "hosts", "", "`file` that lists the nodes, vmmc-hosts.txt")
	c.Flags().StringVar(&w.certs, "certs", "", "`directory` with a user's identity, from \"vmmc cert user\"")
	c.Flags().StringVar(&w.socket, "socket", "", "`path` of the socket of this machine's node")
	c.MarkFlagsMutuallyExclusive("hosts", "socket")
	c.MarkFlagsMutuallyExclusive("certs", "socket")
}

// flags says how a node is asked: as the caller wants it, else over this machine's
// node, else with what is at the usual places.
func (w *where) flags(node string) (*ask.Flags, error) {
	f := &ask.Flags{Nodes: []string{node}, Socket: w.socket}
	f.Use(w.of)
	if f.Socket != "" {
		return f, nil
	}
	overTLS := w.hosts != "" || w.certs != "" || env.Get(hostsEnv) != "" || env.Get(certsEnv) != ""
	if socket := nodeproto.DefaultPath(); !overTLS &&
		(env.Get(nodeproto.Env) != "" || exists(socket)) {
		f.Socket = socket
		return f, nil
	}
	var err error
	if f.Hosts, err = first("hosts file", "--hosts or "+hostsEnv, hostsPlaces(w.hosts)); err != nil {
		return nil, err
	}
	if f.Certs, err = first("certificate", "--certs or "+certsEnv, certsPlaces(w.certs)); err != nil {
		return nil, err
	}
	return f, nil
}

// hostsPlaces are where a hosts file may be; one that the caller names is the only
// one.
func hostsPlaces(named string) []string {
	for _, p := range []string{named, env.Get(hostsEnv)} {
		if p != "" {
			return []string{p}
		}
	}
	var list []string
	if r := root.FromEnv(); r != "" {
		list = append(list, r.Hosts())
	}
	if d, err := env.ConfigHome(); err == nil {
		list = append(list, filepath.Join(d, "vmmc", cluster.HostsFile))
	}
	return append(list, filepath.Join("/etc/vmmc", cluster.HostsFile))
}

func certsPlaces(named string) []string {
	for _, p := range []string{named, env.Get(certsEnv)} {
		if p != "" {
			return []string{p}
		}
	}
	if d, err := env.ConfigHome(); err == nil {
		return []string{filepath.Join(d, "vmmc")}
	}
	return nil
}

// first returns the first of the places that exists. A single one need not exist: opening
// it later says what is wrong with it.
func first(what, how string, places []string) (string, error) {
	if i := slices.IndexFunc(places, exists); i >= 0 {
		return places[i], nil
	}
	if len(places) == 1 {
		return places[0], nil
	}
	return "", fmt.Errorf("this machine has no node at %s, and no %s at %s: name one with %s", nodeproto.DefaultPath(), what, strings.Join(places, ", "), how)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// complete offers the nodes of the hosts file, and then the verbs.
func (w *where) complete(
	_ *cobra.Command, args []string, _ string,
) ([]string, cobra.ShellCompDirective) {
	var words []string
	switch len(args) {
	case 0:
		if file, err := first("", "", hostsPlaces(w.hosts)); err == nil {
			list, _ := hosts.ReadFile(file)
			for _, h := range list {
				words = append(words, h.Name)
			}
		}
	case 1:
		for _, v := range verbs() {
			words = append(words, v.name)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
