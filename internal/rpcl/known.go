package rpcl

import "math/big"

// known are the types that .x files may take from C's headers without defining them.
var known = map[string]*Var{
	"int8_t": plain(Int8), "int16_t": plain(Int16), "int32_t": plain(Int32), "int64_t": plain(Int64),
	"uint8_t": plain(Uint8), "uint16_t": plain(Uint16), "uint32_t": plain(Uint32), "uint64_t": plain(Uint64),
	"u_int8_t": plain(Uint8), "u_int16_t": plain(Uint16), "u_int32_t": plain(Uint32), "u_int64_t": plain(Uint64),
	"int8": plain(Int8), "int16": plain(Int16), "int32": plain(Int32), "int64": plain(Int64),
	"uint8": plain(Uint8), "uint16": plain(Uint16), "uint32": plain(Uint32), "uint64": plain(Uint64),
	"u_char": plain(Uint8), "u_short": plain(Uint16), "u_int": plain(Uint32), "u_long": plain(Uint32),
	"quad_t": plain(Int64), "u_quad_t": plain(Uint64), "longlong_t": plain(Int64), "u_longlong_t": plain(Uint64),
	"quadruple": plain(Quadruple),
	"bool_t":    plain(Bool), "enum_t": plain(Int32),
	"rpcprog_t": plain(Uint32), "rpcvers_t": plain(Uint32), "rpcproc_t": plain(Uint32), "rpcport_t": plain(Uint32),
	"netobj":    {Kind: Opaque, Shape: Variable, N: 1024},
	"des_block": {Kind: Opaque, Shape: Fixed, N: 8},
}

func plain(k Kind) *Var { return &Var{Kind: k} }

// knownConsts are constants of C's headers.
var knownConsts = map[string]*big.Int{
	"FALSE":         new(big.Int),
	"TRUE":          big.NewInt(1),
	"MAXNETNAMELEN": big.NewInt(255),
}

// netbuf is the one structure of C's headers that is used in protocols; a file that does has it.
func netbuf() *Def {
	return &Def{Form: Struct, Name: "netbuf", Members: []*Var{
		{Name: "maxlen", Kind: Uint32},
		{Name: "buf", Kind: Opaque, Shape: Variable},
	}}
}
