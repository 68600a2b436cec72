/* OnewayBandwidth measures the bandwidth of one node that keeps sending to another. */
#include "common/sample.h"

int main(int argc, char **argv)
{
    return bandwidth_main(argc, argv, "OnewayBandwidth", "one node that keeps sending to another",
                          &oneway);
}
