//go:build linux && cgo

package main

// #include "protocol.h"
import "C"

import "github.com/vmmc-go/vmmc/internal/nodeproto"

// The text in the library that vmmc doctor reads has the protocol's version: this does not compile
// where VMMC_PROTOCOL is another one.
var _ = [1]struct{}{}[C.VMMC_PROTOCOL-nodeproto.Version]
