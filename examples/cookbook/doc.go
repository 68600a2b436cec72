// Package cookbook is the code of docs/cookbook.md. Its tests run each recipe in processes of their
// own.
package cookbook

import "log"

// check ends the program on an error, as a short program may.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
