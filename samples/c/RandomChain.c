/* RandomChain sends messages from one to the next at random among the nodes of a cluster. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return relay_main(argc, argv, "RandomChain",
                      "Each iteration draws one more\nrank, never the same twice in a row; in the "
                      "end the message comes home to A.",
                      CHAIN);
}
