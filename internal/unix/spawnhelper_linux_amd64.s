#include "textflag.h"

// func spawnHelperCode() unsafe.Pointer
TEXT ·spawnHelperCode(SB), NOSPLIT, $0-8
	LEAQ ·spawnHelper(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// spawnHelper is never called: it is copied into the spawn helper's image (see spawnhelper_linux.go), at
// whose start the kernel enters it. R12 is the system call that is next, R13 the first one.
TEXT ·spawnHelper(SB), NOSPLIT|NOFRAME, $0
	MOVL $0x400400, R13
	MOVQ R13, R12
call:
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	SYSCALL
	TESTQ AX, AX
	JS failed
next:
	ADDQ $64, R12
	JMP call
failed:
	CMPQ 48(R12), $0
	JNE next
	// write(report, {errno, call}, 16), then exit_group(127). The stack is the kernel's for the new image.
	SUBQ $16, SP
	MOVQ AX, 0(SP)
	MOVQ R12, 8(SP)
	MOVQ -8(R13), DI
	MOVQ SP, SI
	MOVL $16, DX
	MOVL $1, AX
	SYSCALL
	MOVL $127, DI
	MOVL $231, AX
	SYSCALL
	INT $3
	ADDQ $16, SP
	RET
	// Room, as a fixed number of bytes is copied.
	PCALIGN $64
	RET
	PCALIGN $64
	RET
	PCALIGN $64
	RET
