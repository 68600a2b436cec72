/* Return values and their texts, which are those of internal/code. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core.h"
#include "vmmcx.h"

static const struct {
    int code;
    const char *text;
} texts[] = {
#include "texts.inc"
};

API char *vmmc_ErrorStr(int errCode) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].code == errCode) {
            return (char *)texts[i].text;
        }
    }
    return (char *)"unknown error code";
}

API void vmmc_Error(int errCode, char *text) {
    if (text) {
        fprintf(stderr, "%s: %s\n", text, vmmc_ErrorStr(errCode));
    } else {
        fprintf(stderr, "%s\n", vmmc_ErrorStr(errCode));
    }
}

/* Keeps the text of an error that C has found itself, and returns the code. */
int vmmc_fail(int code, const char *text) {
    struct thread *t = vmmc_thread();
    if (t) {
        strncpy(t->text, text, sizeof t->text - 1);
        t->text[sizeof t->text - 1] = 0;
    }
    return code;
}

API const char *vmmcx_last_error(void) {
    struct thread *t = vmmc_thread();
    return t ? t->text : "";
}

/* The manual's value that each of the library's own belongs to; see errors.go. */
API int vmmcx_error_is(int errCode, int kind) {
    if (errCode == kind) {
        return 1;
    }
    switch (errCode) {
    case vmmcErr_NoRights:
    case vmmcErr_PeerGone:
    case vmmcErr_Revoked:
    case vmmcErr_StaleImport:
    case vmmcErr_Closed:
        return kind == vmmcErr_BadIbufState || kind == vmmcErr_BadRbufState;
    case vmmcErr_NotRedirectable:
        return kind == vmmcErr_BadRbufState;
    default:
        return 0;
    }
}
