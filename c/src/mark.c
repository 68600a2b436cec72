#include "core.h"
#include "mark.h"

static const char mark[] __attribute__((used)) = VMMC_MARK("c") ".";
static const char folder[] __attribute__((used)) = VMMC_FOLDER VMMC_LIBDIR;
