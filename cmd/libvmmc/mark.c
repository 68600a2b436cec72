#include "mark.h"

#include "protocol.h"

const char vmmcgo_mark[] __attribute__((used)) =
    VMMC_MARK("go") " protocol=" VMMC_NUMBER(VMMC_PROTOCOL) ".";
