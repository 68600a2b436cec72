/* Version, sizes, debug level (pages 45, 53, 58, 59; Programming Model 2). */
#include <stdio.h>
#include <vmmc.h>

void print_version(void);
uint32 words_of(unsigned long bytes);
uint32 words_of_pages(uint32 pages);
void be_verbose(void);

/* Page 58. */
void print_version(void)
{
    uint32 major, minor;

    vmmc_Version(&major, &minor);
    printf("VMMC %lu.%lu\n", (unsigned long)major, (unsigned long)minor);
}

/* Page 59: lengths are whole words. */
uint32 words_of(unsigned long bytes)
{
    unsigned long word = (unsigned long)vmmc_WordSize();

    return (uint32)((bytes + word - 1) / word);
}

/* Page 45: a page is a whole number of words. */
uint32 words_of_pages(uint32 pages)
{
    return pages * (uint32)(vmmc_PageSize() / vmmc_WordSize());
}

/* Page 53: 0 is silence. */
void be_verbose(void)
{
    vmmc_SetDebugLevel(1);
}
