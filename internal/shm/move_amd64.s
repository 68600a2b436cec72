//go:build !race

#include "textflag.h"

// func quickStrings() bool
TEXT ·quickStrings(SB), NOSPLIT, $0-1
	XORL AX, AX
	XORL CX, CX
	CPUID
	CMPL AX, $7
	JLT  no
	MOVL $7, AX
	XORL CX, CX
	CPUID
	SHRL $4, DX
	ANDL $1, DX
	MOVB DX, ret+0(FP)
	RET

no:
	MOVB $0, ret+0(FP)
	RET

// func moveString(dst, src unsafe.Pointer, n int)
TEXT ·moveString(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	REP; MOVSB
	RET
