package rpcgo

// Exported is for tests that name what is made.
var Exported = exported
