package main

import "github.com/spf13/cobra"

func newRPC() *cobra.Command {
	c := group("rpc", "Look at SunRPC's servers")
	c.Example = `  vmmc rpc info`
	c.AddCommand(newRPCInfo())
	return c
}
