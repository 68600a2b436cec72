/* FetchBandwidth measures the bandwidth of one node that keeps fetching from another. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return bandwidth_main(argc, argv, "FetchBandwidth", "one node that keeps fetching from another",
                          &fetch);
}
