package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/vmmc-go/vmmc"
)

// joiner NODE PROGRAM...: a program as people start them from a shell, which has
// a process of its own making beside it, and spawns a program on a node. It runs
// until it is ended.
func joiner() int {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	err := exec.Command("sleep", "5068").Start()
	var p *vmmc.Process
	if err == nil {
		p, err = vmmc.Open(ctx)
	}
	var node vmmc.NodeID
	var pid vmmc.PID
	if err == nil {
		if err = node.UnmarshalText([]byte(os.Args[1])); err == nil {
			pid, err = p.Spawn(ctx, node, os.Args[2], os.Args[3:]...)
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("joined as", p.ID().PID, "spawned", pid)
	select {}
}
