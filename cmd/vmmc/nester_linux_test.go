package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// nester N: makes N directories in each other, in its working directory.
func nester() int {
	n, err := strconv.Atoi(os.Args[1])
	for i := 0; err == nil && i < n; i++ {
		if err = syscall.Mkdir("d", 0o755); err == nil {
			err = syscall.Chdir("d")
		}
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
