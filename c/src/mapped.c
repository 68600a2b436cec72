/* The rare part of the mapped path: see mapped.h. */
#include "mapped.h"

/* Reports whether a sleeper of the exporter may wait for one of n bytes at off. There is one. */
int vmmc_concerns(const struct vmmcb_path *p, uint64_t off, uint64_t n) {
    if (p->address == 0 || VMMC_LOAD(p->sleepers_any) != 0) {
        return 1;
    }
    uint64_t at = p->address + off;
    for (int i = 0; i < VMMCB_BOARD_WORDS; i++) {
        uint64_t w = VMMC_LOAD(&p->sleepers_at[i]);
        if (w != 0 && (w - at < n || at - w < VMMC_WORD)) {
            return 1;
        }
    }
    return 0;
}
