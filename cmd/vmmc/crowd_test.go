package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// crowd SOCKET N: N connections that say nothing, until the node closes one that it had taken on or this
// is ended.
func crowd() int {
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		fmt.Println(err)
		return 2
	}
	held, gone := make([]net.Conn, n), make(chan error)
	for i := range held {
		if held[i], err = net.Dial("unixpacket", os.Args[1]); err != nil {
			fmt.Println(err)
			return 1
		}
		go func() {
			if n, err := held[i].Read(make([]byte, 1)); n == 0 { // else it says why it does not take this one on
				gone <- fmt.Errorf("connection %d is gone: %w", i, err)
			}
		}()
	}
	fmt.Println("all are there")
	if len(os.Args) > 3 {
		select {}
	}
	fmt.Println(<-gone)
	return 0
}
