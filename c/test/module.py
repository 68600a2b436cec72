"""Tests of c/python/vmmc.py, which c/python_test.go runs on a node."""

import array
import ctypes
import gc
import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import unittest

import vmmc

try:
    import numpy
except ImportError:
    numpy = None

LIMIT = 60  # seconds, after which a wait has failed


def code_of(call, *args, **kwargs):
    """The code of the error that a call raises."""
    try:
        call(*args, **kwargs)
    except vmmc.Error as e:
        assert e.text and str(e) == e.text, "no text"
        return e.code
    return vmmc.Code.SUCCESS


class Case(unittest.TestCase):
    def setUp(self):
        self.p = vmmc.open()

    def loop(self, id, buffer, **options):
        """An export of this process, and its own import of it."""
        e = self.p.export(id, buffer, **options)
        self.addCleanup(e.close)
        im = self.p.import_buffer(self.p.node, self.p.pid, id, timeout=LIMIT)
        self.addCleanup(im.close)
        return e, im


class Nodes(Case):
    def test_nodes(self):
        nodes = self.p.nodes()
        self.assertIn(self.p.node, nodes)
        self.assertEqual(self.p.find(self.p.node.name), self.p.node)
        self.assertEqual(len({n.name for n in nodes}), len(nodes))
        self.assertEqual(len(set(nodes)), len(nodes))
        self.assertEqual([n.name for n in self.p.session_nodes()], [n.name for n in nodes])
        self.assertEqual(code_of(self.p.find, "nowhere"), vmmc.Code.NO_SUCH_NODE)
        self.assertEqual(code_of(self.p.parent), vmmc.Code.NO_PARENT)
        self.assertGreater(self.p.pid, 0)
        self.assertEqual(vmmc.open().pid, self.p.pid)

    def test_spawn(self):
        with self.p.export(70, self.p.alloc(8)) as e:
            child = ("import os, sys\n"
                     "sys.path[:0] = %r\n"
                     "os.environ['VMMC_LIBRARY'] = %r\n"
                     "import vmmc\n"
                     "p = vmmc.open()\n"
                     "node, pid = p.parent()\n"
                     "with p.import_buffer(node, pid, 70) as im:\n"
                     "    im.send(p.pid.to_bytes(4, sys.byteorder), 4)\n"
                     % (sys.path, os.environ["VMMC_LIBRARY"]))
            pid = self.p.spawn([sys.executable, "-c", child])
            self.assertEqual(e.word(4).wait(0, LIMIT), pid)
        self.assertEqual(code_of(self.p.spawn, []), vmmc.Code.BAD_ARG)


class Transfers(Case):
    def buffers(self):
        yield bytearray(64)
        yield memoryview(bytearray(128))[32:96]
        yield array.array("i", [0] * 16)
        yield (ctypes.c_double * 8)()
        yield self.p.alloc(64)
        if numpy is not None:
            yield numpy.zeros((4, 4), dtype=numpy.float32)
            yield numpy.frombuffer(self.p.alloc(64), dtype=numpy.int32)

    def test_kinds_of_memory(self):
        for n, buffer in enumerate(self.buffers()):
            with self.subTest(kind=type(buffer).__name__, n=n):
                e, im = self.loop(100 + n, buffer)
                self.assertEqual((e.size, im.size), (64, 64))
                im.send(bytes(range(32)), 16)
                e.word(44).wait_for(struct.unpack("=i", bytes(range(28, 32)))[0], LIMIT)
                want = bytes(16) + bytes(range(32)) + bytes(16)
                self.assertEqual(bytes(memoryview(buffer).cast("B")), want)
                self.assertEqual(im.get(), want)
                self.assertEqual(im.get(8, 20), want[20:28])
                self.assertEqual(im.get(offset=56), want[56:])

    def test_kinds_of_sources(self):
        buffer = bytearray(64)
        e, im = self.loop(1, buffer)
        odd = memoryview(bytes(range(1, 70)))
        sources = [b"12345678", bytearray(b"abcdefgh"), memoryview(b"01234567"),
                   array.array("h", [1, 2, 3, 4])]
        sources += [odd[i:i + 8] for i in range(4)]  # at least three are not aligned
        if numpy is not None:
            sources.append(numpy.arange(2, dtype=numpy.float32))
        for n, source in enumerate(sources):
            im.send(bytes(64))
            im.send(source, 8)
            want = bytes(memoryview(source).cast("B"))
            self.assertEqual(im.get(8, 8), want, n)
            self.assertEqual(im.get(8), bytes(8), n)

    def test_get_into(self):
        buffer = bytearray(b"abcdefgh")
        _, im = self.loop(1, buffer)
        into = array.array("i", [0, 0, 0])
        im.get_into(memoryview(into)[1:])
        self.assertEqual(into.tobytes(), bytes(4) + b"abcdefgh")
        odd = memoryview(bytearray(12))
        aligned = [code_of(im.get_into, odd[i:i + 8]) for i in range(4)]
        self.assertEqual(sorted(aligned), [vmmc.Code.BAD_ALIGNMENT] * 3 + [vmmc.Code.SUCCESS])

    def test_words(self):
        e, im = self.loop(1, bytearray(16))
        w = e.word(4)
        self.assertEqual(w.value, 0)
        w.value = -5
        self.assertEqual(im.get(4, 4), struct.pack("=i", -5))
        self.assertEqual(w.wait(0, LIMIT), -5)
        threading.Timer(0.05, im.send, [struct.pack("=i", 9), 4]).start()
        self.assertEqual(w.wait(-5, LIMIT), 9)
        with self.assertRaises(TimeoutError) as caught:
            w.wait(9, 0.01)
        self.assertEqual(caught.exception.code, vmmc.Code.TIMEOUT)
        self.assertRaises(vmmc.Timeout, w.wait_for, 10, 0)
        e.close()
        self.assertEqual(code_of(lambda: w.value), vmmc.Code.BAD_RBUF_STATE)
        self.assertEqual(code_of(w.wait, 9), vmmc.Code.BAD_RBUF_STATE)


    def test_atomics(self):
        for memory in (bytearray(16), self.p.alloc(16)):
            e, im = self.loop(1, memory)
            w = e.word(8)
            w.value = 5
            self.assertEqual(im.fetch_add(8, -7), 5)
            self.assertEqual(im.swap(8, 40), -2)
            self.assertEqual(im.compare_and_swap(8, 41, 1), 40)
            self.assertEqual(im.compare_and_swap(8, 40, 1), 40)
            self.assertEqual(w.value, 1)
            im.send(bytes(8))
            im.fence()
            for call in (im.fetch_add, im.swap):
                self.assertEqual(code_of(call, 16, 1), vmmc.Code.BAD_PROXY_ADDR)
                self.assertEqual(code_of(call, 2, 1), vmmc.Code.BAD_ALIGNMENT)
            im.close()
            e.close()
            self.assertEqual(code_of(im.fence), vmmc.Code.CLOSED)
            self.assertEqual(code_of(im.swap, 0, 1), vmmc.Code.CLOSED)

    def test_atomics64(self):
        for memory in (self.p.alloc(32), bytearray(32)):
            e, im = self.loop(1, memory)
            if e._address % 8 == 0:
                self.assertEqual(im.swap64(8, 1 << 40), 0)
                self.assertEqual(im.fetch_add64(8, -(1 << 41)), 1 << 40)
                self.assertEqual(im.compare_and_swap64(8, 0, 5), -(1 << 40))
                self.assertEqual(im.compare_and_swap64(8, -(1 << 40), 5), -(1 << 40))
                self.assertEqual(bytes(memory[8:16]), (5).to_bytes(8, sys.byteorder))
                self.assertEqual(code_of(im.swap64, 4, 1), vmmc.Code.BAD_ALIGNMENT)
            self.assertEqual(code_of(im.fetch_add64, 28, 1), vmmc.Code.BAD_PROXY_ADDR)
            im.close()
            e.close()

    def test_requests(self):
        for n in (4, 4096, 1 << 20):
            memory = self.p.alloc(n)
            e, im = self.loop(1, memory)
            data = bytearray(os.urandom(n))
            q = im.send_async(data)
            q.wait(LIMIT)
            self.assertTrue(q.done())
            im.fence()
            self.assertEqual(bytes(memory), bytes(data))
            data.append(1)  # it is held no longer
            back = bytearray(n)
            im.get_into_async(back).wait(LIMIT)
            self.assertEqual(back, data[:n])
            odd = memoryview(bytearray(n + 1))[1:]
            im.send_async(odd).wait(LIMIT)
            im.fence()
            self.assertEqual(bytes(memory), bytes(n))
            for _ in range(20):  # dropped at once: it goes on
                im.send_async(bytearray(data[:n]))
            im.fence()
            self.assertEqual(bytes(memory), bytes(data[:n]))
            self.assertEqual(code_of(im.send_async, bytes(8), n), vmmc.Code.BAD_PROXY_ADDR)
            self.assertEqual(code_of(im.get_into_async, bytearray(3)), vmmc.Code.BAD_SIZE)
            im.close()
            self.assertEqual(code_of(im.send_async, bytes(4)), vmmc.Code.CLOSED)
            e.close()

    def test_request_with_a_notification(self):
        values = []
        e, im = self.loop(1, bytearray(16), handler=lambda n: values.append((n.offset, n.value)))
        im.send_async(struct.pack("=ii", 1, 7), 4, notify=True).wait(LIMIT)
        end = time.monotonic() + LIMIT
        while not values and time.monotonic() < end:
            time.sleep(0.001)
        self.assertEqual(values, [(8, 7)])

    def test_names(self):
        with self.p.export(1, bytearray(16)) as e:
            e.publish("python-test")
            with self.p.import_name("python-test", LIMIT) as im:
                self.assertEqual(im.size, 16)
                im.send(b"1234", 4)
                self.assertNotEqual(e.word(4).wait(0, LIMIT), 0)
            e.unpublish("python-test")
            self.assertRaises(vmmc.Timeout, self.p.import_name, "python-test", 0.02)
            threading.Timer(0.05, e.publish, ("python-test",)).start()
            self.p.import_name("python-test", float("inf")).close()
        self.assertEqual(code_of(e.publish, "python-test"), vmmc.Code.BAD_RBUF_STATE)
        self.assertEqual(code_of(self.p.import_name, "", 1), vmmc.Code.BAD_NAME)

    def test_group(self):
        g = self.p.group()
        self.assertEqual((g.rank, g.size), (0, 1))
        self.assertEqual(g.member(0, LIMIT), (self.p.node, self.p.pid))
        g.barrier(LIMIT)
        g.barrier()
        self.assertEqual(code_of(g.member, 1), vmmc.Code.BAD_ARG)

    def test_wait_with_a_peer(self):
        e, _ = self.loop(1, bytearray(16))
        other, im = self.loop(2, bytearray(16))
        self.assertRaises(vmmc.Timeout, e.word(0).wait, 0, 0.01, im)
        threading.Timer(0.02, other.close).start()
        self.assertEqual(code_of(e.word(0).wait, 0, LIMIT, im), vmmc.Code.REVOKED)
        im.close()
        self.assertEqual(code_of(e.word(0).wait, 0, LIMIT, im), vmmc.Code.BAD_IBUF_STATE)


class Errors(Case):
    def test_exports(self):
        export = self.p.export
        self.assertRaises(BufferError, export, 1, b"read-only")
        self.assertRaises(TypeError, export, 1, 17)
        self.assertRaises((BufferError, ValueError), export, 1, memoryview(bytearray(64))[::2])
        self.assertEqual(code_of(export, 1, bytearray(6)), vmmc.Code.BAD_SIZE)
        self.assertEqual(code_of(export, 1, bytearray()), vmmc.Code.BAD_SIZE)
        self.assertEqual(code_of(export, 1, memoryview(bytearray(12))[2:10]),
                         vmmc.Code.BAD_ALIGNMENT)
        self.assertEqual(code_of(export, 1, bytearray(8), access="x"), vmmc.Code.BAD_ARG)
        self.assertEqual(code_of(export, -1, bytearray(8)), vmmc.Code.BAD_ARG)
        self.assertEqual(code_of(export, 1 << 32, bytearray(8)), vmmc.Code.BAD_ARG)
        memory = bytearray(8)
        with export(1, memory):
            self.assertEqual(code_of(export, 1, bytearray(8)), vmmc.Code.BUF_ALREADY_EXISTS)
            self.assertEqual(code_of(export, 2, memory), vmmc.Code.OVERLAPPED_BUFS)
        for size in (0, 3, -4):
            self.assertEqual(code_of(self.p.alloc, size), vmmc.Code.BAD_SIZE)

    def test_a_refused_export_holds_nothing(self):
        memory, heard = bytearray(8), threading.Event()
        _, im = self.loop(1, memory, handler=lambda n: heard.set())
        for _ in range(3):
            self.assertEqual(code_of(self.p.export, 2, memory, handler=print),
                             vmmc.Code.OVERLAPPED_BUFS)
        im.send(b"12345678", notify=True)
        self.assertTrue(heard.wait(LIMIT))
        other = bytearray(8)
        self.assertEqual(code_of(self.p.export, 1, other), vmmc.Code.BUF_ALREADY_EXISTS)
        other.extend(b"it may be resized")

    def test_imports(self):
        p = self.p
        self.assertEqual(code_of(p.import_buffer, p.node, 0x7fffffff, 1),
                         vmmc.Code.NO_SUCH_PROCESS)
        self.assertEqual(code_of(p.import_buffer, p.node, -1, 1), vmmc.Code.BAD_ARG)
        self.assertEqual(code_of(p.import_buffer, p.node, 1, 1 << 32), vmmc.Code.BAD_ARG)
        with self.assertRaises(vmmc.Timeout) as caught:
            p.import_buffer(p.node, p.pid, 4711, timeout=0.01)
        self.assertIn("4711", caught.exception.text)

    def test_transfers(self):
        e, im = self.loop(1, bytearray(16))
        for call in (im.send, im.get_into):
            self.assertEqual(code_of(call, bytearray(3)), vmmc.Code.BAD_SIZE)
            self.assertEqual(code_of(call, bytearray()), vmmc.Code.BAD_SIZE)
            self.assertEqual(code_of(call, bytearray(4), 2), vmmc.Code.BAD_ALIGNMENT)
            self.assertEqual(code_of(call, bytearray(4), 16), vmmc.Code.BAD_PROXY_ADDR)
            self.assertEqual(code_of(call, bytearray(4), -4), vmmc.Code.BAD_PROXY_ADDR)
            self.assertEqual(code_of(call, bytearray(20)), vmmc.Code.BAD_PROXY_ADDR)
        self.assertRaises(BufferError, im.get_into, b"1234")
        self.assertEqual(code_of(e.word, 16), vmmc.Code.BAD_PROXY_ADDR)
        self.assertEqual(code_of(e.word, 2), vmmc.Code.BAD_ALIGNMENT)
        e.close()
        self.assertEqual(code_of(im.get_into, bytearray(4)), vmmc.Code.REVOKED)
        self.assertEqual(code_of(im.send, bytes(4)), vmmc.Code.REVOKED)
        im.close()
        self.assertEqual(code_of(im.send, bytes(4)), vmmc.Code.CLOSED)
        im.close()
        e.close()

    def test_access(self):
        e, im = self.loop(1, bytearray(8), access="r")
        self.assertEqual(im.get(), bytes(8))
        with self.assertRaises(vmmc.Error) as caught:
            im.send(bytes(4))
        self.assertEqual(caught.exception.code, vmmc.Code.NO_RIGHTS)
        self.assertTrue(caught.exception.matches(vmmc.Code.BAD_IBUF_STATE))
        self.assertFalse(caught.exception.matches(vmmc.Code.BAD_SIZE))


class Redirection(Case):
    def await_end(self, e, offset):
        """Waits until data ends there: the end is stored after the message."""
        end = time.monotonic() + LIMIT
        while e.data_end() != offset:
            self.assertLess(time.monotonic(), end, "data ends at %s" % e.data_end())
            time.sleep(0)

    def test_one_message(self):
        for id, memory in enumerate((bytearray(64), self.p.alloc(64)), 1):
            e, im = self.loop(id, memory, redirectable=True)
            self.assertIsNone(e.data_end())
            target = bytearray(b"-" * 24)
            e.post_redirect(target, 8)
            self.assertRaises(BufferError, target.extend, b"x")
            self.assertEqual(code_of(e.post_redirect, bytearray(4)), vmmc.Code.BAD_RBUF_STATE)
            im.send(b"outside.inside01inside02", 0)
            self.await_end(e, 20)
            self.assertEqual(e.end_redirect(), (16, 0))
            self.assertEqual(target, b"inside01inside02--------")
            self.assertEqual(memory[:24], b"outside." + bytes(16))
            target.extend(b"x")  # nothing holds it any more

            e.clear_data_end()
            self.assertIsNone(e.data_end())
            im.send(b"to the buffer...", 16)
            self.await_end(e, 28)
            self.assertEqual(memory[16:32], b"to the buffer...")

            e.post_redirect(target[:8], 32)
            im.send(b"the second half of it is there..", 24)  # bytes 24 to 56
            self.await_end(e, 52)
            self.assertEqual(e.end_redirect(), (8, 0))

    def test_refused(self):
        e, _ = self.loop(1, bytearray(16), redirectable=True)
        plain, _ = self.loop(2, bytearray(16))
        target = bytearray(8)
        for code, export, args in (
                (vmmc.Code.NOT_REDIRECTABLE, plain, (target,)),
                (vmmc.Code.BAD_SIZE, e, (bytearray(6),)),
                (vmmc.Code.BAD_SIZE, e, (bytearray(0),)),
                (vmmc.Code.BAD_ALIGNMENT, e, (target, 2)),
                (vmmc.Code.BAD_PROXY_ADDR, e, (target, 12)),
                (vmmc.Code.BAD_PROXY_ADDR, e, (target, -4))):
            self.assertEqual(code_of(export.post_redirect, *args), code)
        self.assertRaises(BufferError, e.post_redirect, bytes(8))
        self.assertEqual(code_of(e.end_redirect), vmmc.Code.BAD_RBUF_STATE)
        self.assertEqual(code_of(plain.end_redirect), vmmc.Code.NOT_REDIRECTABLE)
        self.assertIsNone(plain.data_end())
        target.extend(b"x")  # what was refused is not held

    def test_the_end_of_the_export_lets_go(self):
        for drop in (False, True):
            e = self.p.export(1, bytearray(16), redirectable=True)
            target = bytearray(8)
            e.post_redirect(target)
            self.assertRaises(BufferError, target.extend, b"x")
            if drop:
                del e
                gc.collect()
            else:
                e.close()
                for call in (e.end_redirect, e.data_end, e.clear_data_end,
                             lambda: e.post_redirect(target)):
                    self.assertEqual(code_of(call), vmmc.Code.BAD_RBUF_STATE)
            target.extend(b"x")


class Lifetimes(Case):
    def test_memory_is_held(self):
        memory = bytearray(16)
        e = self.p.export(1, memory)
        self.assertRaises(BufferError, memory.extend, b"x")
        e.close()
        memory.extend(b"x")
        self.assertTrue(e.closed)

    def test_dropped_in_any_order(self):
        for order in itertools.permutations(("memory", "export", "import", "word")):
            memory = self.p.alloc(64)
            export = self.p.export(1, memory)
            im = self.p.import_buffer(self.p.node, self.p.pid, 1, timeout=LIMIT)
            held = {"memory": memory, "export": export, "import": im, "word": export.word(0)}
            del memory, export, im
            for name in order:
                if "import" in held and ("export" in held or "word" in held):
                    held["import"].send(b"1234")
                del held[name]
                gc.collect()
            # The id is free, so the export has ended.
            self.p.export(1, bytearray(8)).close()

    def test_closed_while_another_thread_waits(self):
        for _ in range(20):
            memory = self.p.alloc(4096)
            e = self.p.export(1, memory)
            w, codes = e.word(0), []
            waiter = threading.Thread(target=lambda: codes.append(code_of(w.wait, 0)))
            waiter.start()
            time.sleep(0.002)
            e.close()
            del memory, e
            gc.collect()
            waiter.join()
            self.assertEqual(codes, [vmmc.Code.BAD_RBUF_STATE])

    def test_memory_moves_after_the_export(self):
        memory = bytearray(64)
        e = self.p.export(1, memory)
        w, found = e.word(0), e._check_open

        def close_meanwhile(what):  # as another thread may, before the memory is held
            object = found(what)
            e.close()
            memory.extend(bytes(1 << 20))
            return object

        e._check_open = close_meanwhile
        self.assertEqual(code_of(lambda: w.value), vmmc.Code.BAD_RBUF_STATE)
        e = self.p.export(1, memory)
        w, found, e._check_open = e.word(0), e._check_open, close_meanwhile
        self.assertEqual(code_of(w.wait, 1), vmmc.Code.BAD_RBUF_STATE)

    def test_close_goes_on(self):
        with vmmc.open() as p:
            exports = [p.export(i, bytearray(8)) for i in range(1, 6)]
            closes, failed = [e.close for e in exports], []

            def fail():
                failed.append(1)
                raise vmmc.Error(vmmc.Code.BLOCKED_NOTIFICATIONS, "not now")

            for e in exports:
                e.close = fail
            self.assertEqual(code_of(p.close), vmmc.Code.BLOCKED_NOTIFICATIONS)
            self.assertEqual(len(failed), 5)
            for e, close in zip(exports, closes):
                e.close = close
            p.close()
            self.assertTrue(all(e.closed for e in exports))

    def test_no_time_limit(self):
        with self.p.export(1, bytearray(8)) as e:
            self.assertEqual(e.word(0).wait(5, timeout=float("inf")), 0)
            im = self.p.import_buffer(self.p.node, self.p.pid, 1, timeout=float("inf"))
            threading.Timer(0.02, im.send, (b"1234",)).start()
            e.word(0).wait(0, timeout=float("inf"))
            im.close()

    def test_memory_is_freed(self):
        def mapped():
            with open("/proc/self/maps") as f:
                return sum("memfd" in line for line in f)

        self.p.export(1, bytearray(8)).close()
        memory = [self.p.alloc(4096) for _ in range(20)]
        most = mapped()
        views = [m[8:16] for m in memory]
        del memory
        gc.collect()
        self.assertEqual(mapped(), most)
        del views
        gc.collect()
        self.assertLessEqual(mapped(), most - 20)

    def test_with_blocks(self):
        with vmmc.open() as p:
            e = p.export(1, bytearray(8))
            im = p.import_buffer(p.node, p.pid, 1, timeout=LIMIT)
        self.assertTrue(e.closed and im.closed)
        try:
            with vmmc.open() as p, p.export(1, bytearray(8)):
                raise KeyError
        except KeyError:
            pass
        self.p.export(1, bytearray(8)).close()

    def test_exit_with_all_open(self):
        program = ("import vmmc\n"
                   "p = vmmc.open()\n"
                   "def handler(n): global seen; seen = n\n"
                   "m = p.alloc(64)\n"
                   "e = p.export(1, m, handler)\n"
                   "b = bytearray(64); f = p.export(2, b, handler)\n"
                   "ims = [p.import_buffer(p.node, p.pid, i) for i in (1, 2)]\n"
                   "for i in range(50): [im.send(b'1234', notify=True) for im in ims]\n"
                   "print('end')\n")
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=LIMIT)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"end\n", b""))


class Handlers(Case):
    def test_handler(self):
        memory, heard, told = bytearray(16), threading.Event(), []

        def handler(n):
            told.append((n.export is e, n.offset, n.value, threading.get_ident()))
            nested.append(code_of(im.send, b"back", 12))
            nested.append(code_of(e.close))
            nested.append(code_of(self.p.export, 9, bytearray(8)))
            nested.append(code_of(self.p.import_buffer, self.p.node, self.p.pid, 1))
            heard.set()

        nested = []
        e, im = self.loop(1, memory, handler=handler)
        im.send(struct.pack("=ii", 7, 8), 4, notify=True)
        self.assertTrue(heard.wait(LIMIT))
        self.assertEqual(told[0][:3], (True, 8, 8))
        self.assertNotEqual(told[0][3], threading.get_ident())
        self.assertEqual(nested, [0] + [vmmc.Code.NOT_IN_HANDLER] * 3)
        e.word(12).wait(0, LIMIT)
        self.assertEqual(memory[12:], b"back")

    def test_many(self):
        count, all_told = [], threading.Event()

        def handler(n):
            count.append(n.value)
            if len(count) == 300:
                all_told.set()

        _, im = self.loop(1, bytearray(8), handler=handler)
        for i in range(300):
            im.send(struct.pack("=i", i), notify=True)
        self.assertTrue(all_told.wait(LIMIT))
        self.assertEqual(len(count), 300)

    def test_handler_that_raises(self):
        heard, raised = threading.Event(), []

        def handler(n):
            if n.value == 1:
                raise KeyError("of the handler")
            heard.set()

        hook, sys.unraisablehook = sys.unraisablehook, lambda u: raised.append(str(u.exc_value))
        self.addCleanup(setattr, sys, "unraisablehook", hook)
        _, im = self.loop(1, bytearray(8), handler=handler)
        im.send(struct.pack("=i", 1), notify=True)
        im.send(struct.pack("=i", 2), notify=True)
        self.assertTrue(heard.wait(LIMIT))
        self.assertEqual(raised, ["'of the handler'"])

    def test_dropped_in_a_handler(self):
        heard, held = threading.Event(), {}

        def handler(n):
            held.clear()
            gc.collect()
            heard.set()

        _, im = self.loop(1, bytearray(8), handler=handler)
        memory = bytearray(8)
        held["export"] = self.p.export(2, memory)
        held["import"] = self.p.import_buffer(self.p.node, self.p.pid, 1)
        im.send(b"1234", notify=True)
        self.assertTrue(heard.wait(LIMIT))
        self.p.export(3, bytearray(8)).close()  # a later call ends what could not be ended
        self.p.export(2, bytearray(8)).close()
        memory.extend(b"it may be resized")

    def test_blocked(self):
        heard = threading.Event()
        _, im = self.loop(1, bytearray(8), handler=lambda n: heard.set())
        vmmc.block_notifications()
        vmmc.block_notifications()
        im.send(b"1234", notify=True)
        self.assertFalse(vmmc.unblock_notifications())
        self.assertFalse(heard.is_set())
        self.assertTrue(vmmc.unblock_notifications())
        self.assertTrue(heard.wait(LIMIT))

    def test_dropped_while_blocked(self):
        memory = bytearray(8)
        e = self.p.export(1, memory, handler=print)
        with self.p.import_buffer(self.p.node, self.p.pid, 1, timeout=LIMIT) as im:
            vmmc.block_notifications()
            im.send(b"1234", notify=True)
            im.get()  # the message has been served
            blocked = code_of(e.close)
            del e
            try:
                memory.extend(b"x")
                held = False
            except BufferError:
                held = True
            vmmc.unblock_notifications()
        self.assertEqual((blocked, held), (vmmc.Code.BLOCKED_NOTIFICATIONS, True))
        self.p.export(3, bytearray(8)).close()
        self.p.export(1, bytearray(8)).close()
        memory.extend(b"x")


class Polling(Case):
    def test_asyncio(self):
        program = ("import asyncio, struct, threading, vmmc\n"
                   "async def main():\n"
                   "    loop, seen = asyncio.get_running_loop(), asyncio.Queue()\n"
                   "    loop.add_reader(vmmc.poll_fd(), vmmc.run_handlers)\n"
                   "    with vmmc.open() as p:\n"
                   "        told = lambda n: seen.put_nowait((n.value, threading.get_ident()))\n"
                   "        p.export(1, p.alloc(64), told).word(0)\n"
                   "        with p.export(2, p.alloc(64), told), \\\n"
                   "                p.import_buffer(p.node, p.pid, 2) as im:\n"
                   "            for i in range(20):\n"
                   "                im.send(struct.pack('=i', i), notify=True)\n"
                   "            got = [await asyncio.wait_for(seen.get(), 60) for _ in range(20)]\n"
                   "            me = threading.get_ident()\n"
                   "            assert got == [(i, me) for i in range(20)], got\n"
                   "    try: vmmc.run_handlers()\n"
                   "    except vmmc.Error: raise SystemExit('after the end')\n"
                   "asyncio.run(main())\n"
                   "print('end')\n")
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=2 * LIMIT)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"end\n", b""))

    def test_late(self):
        with self.p.export(1, bytearray(8), handler=print):
            self.assertEqual(code_of(vmmc.poll_fd), vmmc.Code.BAD_CONFIG)
            self.assertEqual(code_of(vmmc.run_handlers), vmmc.Code.BAD_CONFIG)


class Processes(Case):
    def test_fork(self):
        _, im = self.loop(1, bytearray(8))
        pid = os.fork()
        if pid == 0:
            codes = [code_of(im.send, b"1234"), code_of(self.p.nodes), code_of(vmmc.open)]
            os._exit(0 if codes == [vmmc.Code.CLOSED] * 3 else 1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        im.send(b"1234")

    def test_interrupted_waits(self):
        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        old = signal.signal(signal.SIGALRM, ring)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        e = self.p.export(1, bytearray(8))
        self.addCleanup(e.close)
        for wait in (lambda: self.p.import_buffer(self.p.node, self.p.pid, 77),
                     lambda: e.word(0).wait(0)):
            for _ in range(10):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                self.assertRaises(Alarm, wait)

    def test_threads(self):
        _, im = self.loop(1, bytearray(4 * 20))
        failed = []

        def work(i):
            try:
                for n in range(1, 30):
                    data = struct.pack("=i", n)
                    im.send(data, 4 * i)
                    if im.get(4, 4 * i) != data:
                        failed.append((i, n))
            except vmmc.Error as e:
                failed.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main()
