// Keyvalue keeps a small table in the memory of two replicas. The replicas are
// processes that publish memory and then do nothing: every put is a message into
// both, every get reads from either, and no code of theirs runs for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/view"
)

const puts = 20_000

func main() {
	run := client
	if len(os.Args) > 1 {
		run = replica
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// replica publishes a table under the name that it is given, and stays until its input ends.
func replica() error {
	p, err := vmmc.Open(context.Background(), node.Embed())
	if err != nil {
		return err
	}
	defer p.Close()
	if _, err := view.Export[slot](p, 1, keys, vmmc.WithName(os.Args[1])); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// client puts and gets.
func client() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	p, err := vmmc.Open(ctx, node.Embed())
	if err != nil {
		return err
	}
	defer p.Close()
	var t table
	for _, name := range []string{"replica0", "replica1"} {
		r, end, err := start(ctx, p, name)
		if err != nil {
			return err
		}
		defer end()
		t.replicas = append(t.replicas, r)
	}

	for key, value := range []string{"apple", "pear", "plum"} {
		if err := t.put(ctx, key, value); err != nil {
			return err
		}
	}
	if err := t.put(ctx, 1, "quince"); err != nil {
		return err
	}
	for i := range t.replicas {
		for key := range 3 {
			v, version, err := t.get(ctx, i, key)
			if err != nil {
				return err
			}
			fmt.Printf("replica %d: key %d is %s, version %d\n", i, key, v, version)
		}
	}
	return together(ctx, &t)
}

// together reads a key from one replica while it is being changed in both.
func together(ctx context.Context, t *table) error {
	written := make(chan error, 1)
	go func() {
		for n := range puts {
			if err := t.put(ctx, 3, number(n)); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	before := uint32(0)
	for {
		v, version, err := t.get(ctx, 1, 3)
		switch {
		case err != nil:
			return errors.Join(err, <-written)
		case version < before:
			return fmt.Errorf("version %d came after %d", version, before)
		case version > 0 && v != number(int(version)-1):
			return fmt.Errorf("version %d is torn: %.40q", version, v)
		case version == puts:
			fmt.Printf("%d puts to key 3: every get in between found a whole value, never an older one\n", puts)
			return <-written
		}
		before = version
	}
}

// number is a value that fills its slot, so that a torn one shows.
func number(n int) string { return strings.Repeat(fmt.Sprintf("%022d", n), valueSize/22) }
