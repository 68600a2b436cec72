/* RandomAll2All sends messages from all to all, in random order. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return relay_main(argc, argv, "RandomAll2All",
                      "Each iteration is one\nAll->All: all ranks send one message to each "
                      "other one, in random order.",
                      ALL2ALL);
}
