/* BidirBandwidth measures the bandwidth of two nodes that send to each other at the same time. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return bandwidth_main(argc, argv, "BidirBandwidth",
                          "two nodes that send to each other at the same time",
                          &bidir);
}
