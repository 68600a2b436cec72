//go:build race

package mpi

const race = true
