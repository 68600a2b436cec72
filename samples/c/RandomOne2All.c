/* RandomOne2All sends messages from one to all others and back to another one. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return relay_main(argc, argv, "RandomOne2All",
                      "Each iteration draws\none more rank, never the same twice in a row; in "
                      "the end all send to A.",
                      ONE2ALL);
}
