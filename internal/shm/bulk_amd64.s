#include "textflag.h"

// func takeBlocks(near, copied unsafe.Pointer, n int) int
TEXT ·takeBlocks(SB), NOSPLIT, $0-32
	MOVQ near+0(FP), SI
	MOVQ copied+8(FP), DI
	MOVQ n+16(FP), CX
	XORQ AX, AX

loop:
	CMPQ    AX, CX
	JGE     done
	MOVO    (SI)(AX*1), X0
	MOVO    16(SI)(AX*1), X1
	MOVO    32(SI)(AX*1), X2
	MOVO    48(SI)(AX*1), X3
	MOVO    (DI)(AX*1), X4
	MOVO    16(DI)(AX*1), X5
	MOVO    32(DI)(AX*1), X6
	MOVO    48(DI)(AX*1), X7
	PCMPEQL X0, X4
	PCMPEQL X1, X5
	PCMPEQL X2, X6
	PCMPEQL X3, X7
	POR     X5, X4
	POR     X7, X6
	POR     X6, X4
	PMOVMSKB X4, DX
	TESTL   DX, DX
	JNZ     done
	MOVO    X0, (DI)(AX*1)
	MOVO    X1, 16(DI)(AX*1)
	MOVO    X2, 32(DI)(AX*1)
	MOVO    X3, 48(DI)(AX*1)
	ADDQ    $64, AX
	JMP     loop

done:
	MOVQ AX, ret+24(FP)
	RET

// func putPast(dst, src unsafe.Pointer, n int)
TEXT ·putPast(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	XORQ AX, AX

next:
	CMPQ   AX, CX
	JGE    over
	MOVO   (SI)(AX*1), X0
	MOVO   16(SI)(AX*1), X1
	MOVO   32(SI)(AX*1), X2
	MOVO   48(SI)(AX*1), X3
	MOVNTO X0, (DI)(AX*1)
	MOVNTO X1, 16(DI)(AX*1)
	MOVNTO X2, 32(DI)(AX*1)
	MOVNTO X3, 48(DI)(AX*1)
	ADDQ   $64, AX
	JMP    next

over:
	SFENCE
	RET
