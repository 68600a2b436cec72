/* A program on a C library that the Go part cannot be loaded with. */
#include <stdio.h>

#include "vmmc.h"
#include "vmmcx.h"

int main(void) {
    static int32 words[4];
    vmmc_exphandle_t h;
    int code = vmmc_ExportRecvBuf(words, 4, 1, NULL, BUF_READWRITE, 0, &h);
    printf("%d: %s\n", code, vmmcx_last_error());
    return vmmc_WordSize() == 4 && code == vmmcErr_NotImplemented ? 0 : 1;
}
