//go:build !race

package via_test

const race = false
