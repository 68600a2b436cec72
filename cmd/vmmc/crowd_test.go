package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// crowd SOCKET N: N connections that say nothing, and then one more every 10 ms, until the node
// closes one that it had taken on or this is ended.
func crowd() int {
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Println(err)
		return 2
	}
	gone := make(chan error)
	come := func(i int) error {
		c, err := net.Dial("unixpacket", os.Args[1])
		if err != nil {
			return err
		}
		go func() {
			if n, err := c.Read(make([]byte, 1)); n == 0 { // else it says why it does not take this one on
				gone <- fmt.Errorf("connection %d is gone: %w", i, err)
			}
		}()
		return nil
	}
	for i := range n {
		if err := come(i); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println("all are there")
	if len(os.Args) > 3 {
		select {}
	}
	for i := n; ; i++ {
		select {
		case err := <-gone:
			fmt.Println(err)
			return 0
		case <-time.After(10 * time.Millisecond): // one that was driven out counts until its node has seen its end
			if err := come(i); err != nil {
				fmt.Println(err)
				return 1
			}
		}
	}
}
