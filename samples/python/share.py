"""Two processes share an array, on one node or on two.

    share.py own [NUMBERS]       exports an array of doubles, and prints its node and its pid
    share.py double NODE PID     imports it, doubles each number, and says so by a notification

The array is numpy's where numpy is installed, and a memoryview otherwise.
"""

import sys
import threading

import vmmc

try:
    import numpy
except ImportError:
    numpy = None

ID = 1
DOUBLE = 8


def array_on(memory):
    """An array of doubles in the memory of a buffer, without a copy."""
    if numpy is not None:
        return numpy.frombuffer(memory, dtype=numpy.float64)
    return memoryview(memory).cast("B").cast("d")


def own(numbers):
    doubled = threading.Event()
    with vmmc.open() as p:
        memory = p.alloc(numbers * DOUBLE)  # importers on this node map it
        array = array_on(memory)
        for i in range(numbers):
            array[i] = i
        with p.export(ID, memory, handler=lambda n: doubled.set()):
            print(p.node.name, p.pid, flush=True)
            doubled.wait()
            print("the sum is now %g" % sum(array))


def double(node, pid):
    with vmmc.open() as p, p.import_buffer(p.find(node), pid, ID, timeout=60) as im:
        array = array_on(im.get())
        print("the sum is %g" % sum(array))
        for i in range(len(array)):
            array[i] *= 2
        im.send(array, notify=True)  # the handler runs when all of it is there


if __name__ == "__main__":
    if sys.argv[1:2] == ["own"] and len(sys.argv) <= 3:
        own(int(sys.argv[2]) if len(sys.argv) == 3 else 1000)
    elif sys.argv[1:2] == ["double"] and len(sys.argv) == 4:
        double(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(__doc__)
