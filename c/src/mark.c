#include "mark.h"

static const char mark[] __attribute__((used)) = VMMC_MARK("c") ".";
