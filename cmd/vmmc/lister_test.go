package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc"
)

// lister PIPE...: a program that prints the nodes that it knows, and prints them again
// after each write to the next of the named pipes.
func lister() int {
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	p, err := vmmc.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer p.Close()
	for _, pipe := range append([]string{""}, os.Args[1:]...) {
		if pipe != "" {
			if _, err := os.ReadFile(pipe); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		session, err := p.SessionHosts()
		fmt.Println("all", p.AllHosts(), "session", session, err)
	}
	return 0
}
