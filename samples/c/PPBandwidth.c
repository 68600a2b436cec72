/* PPBandwidth measures the bandwidth of ping-pong between two nodes. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return bandwidth_main(argc, argv, "PPBandwidth", "ping-pong between two nodes",
                          &ping_pong);
}
