/* Text in each part of the library, by which `vmmc doctor` sees what it is without loading it. */
#ifndef VMMC_MARK_H
#define VMMC_MARK_H

#include "boundary.h"

#define VMMC_TEXT_OF(x) #x
#define VMMC_NUMBER(x) VMMC_TEXT_OF(x)
#define VMMC_MARK(part) "vmmc library part=" part " layout=" VMMC_NUMBER(VMMC_LAYOUT)

/* Where `make` was told to install, and the library looks for its Go part in the end. */
#define VMMC_FOLDER "vmmc library folder="

#endif
