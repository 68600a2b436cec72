#include "textflag.h"

// func spawnHelperCode() unsafe.Pointer
TEXT ·spawnHelperCode(SB), NOSPLIT, $0-8
	MOVD $·spawnHelper(SB), R0
	MOVD R0, ret+0(FP)
	RET

// spawnHelper is never called: it is copied into the spawn helper's image (see spawnhelper_linux.go), at
// whose start the kernel enters it. R19 is the system call that is next, R20 the first one.
TEXT ·spawnHelper(SB), NOSPLIT|NOFRAME, $0
	MOVZ $0x400, R20
	MOVK $(0x40<<16), R20
	MOVD R20, R19
call:
	MOVD 0(R19), R8
	MOVD 8(R19), R0
	MOVD 16(R19), R1
	MOVD 24(R19), R2
	MOVD 32(R19), R3
	MOVD 40(R19), R4
	SVC
	TBNZ $63, R0, failed
next:
	ADD $64, R19
	JMP call
failed:
	MOVD 48(R19), R9
	CBNZ R9, next
	// write(report, {errno, call}, 16), then exit_group(127). The stack is the kernel's for the new image.
	SUB $16, RSP
	MOVD R0, 0(RSP)
	MOVD R19, 8(RSP)
	MOVD -8(R20), R0
	MOVD RSP, R1
	MOVD $16, R2
	MOVD $64, R8
	SVC
	MOVD $127, R0
	MOVD $94, R8
	SVC
	BRK
	ADD $16, RSP
	RET
	// Room, as a fixed number of bytes is copied.
	PCALIGN $64
	RET
	PCALIGN $64
	RET
	PCALIGN $64
	RET
