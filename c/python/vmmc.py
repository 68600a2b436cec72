"""Remote memory: the VMMC library for Python.

A process exports memory of its own: a bytearray, an array.array, a numpy array, or memory of
Process.alloc. Another process, on the same machine or on another one, imports it by the exporter's
node and pid and the export's id. It then sends data into that memory or gets data from it, without
any action of the exporter. There is no call to receive: the data is in the memory.

    import vmmc

    with vmmc.open() as p:
        memory = p.alloc(4096)               # a memoryview; importers on this node map it
        with p.export(1, memory) as e:
            print(p.node.name, p.pid)
            e.word(4092).wait(0)             # until a message's last word has arrived

    with vmmc.open() as p:
        with p.import_buffer(p.find("n1"), 12345, 1) as im:
            im.send(bytes(4092) + b"done")

Offsets and lengths are bytes, in multiples of the word (4 bytes). The last word of a message is
stored last, atomically, when all else of it is in place. A word's value is a signed 32-bit integer
in the byte order of the machine.

The module needs CPython 3.9 or newer and libvmmc, and nothing else. It finds the library beside
its own place of installation, then as the system finds libraries; the environment variable
VMMC_LIBRARY names another file. VMMC_SOCKET names the node's socket, as for all programs.

A blocking wait of this module (import_buffer, import_name, Word.wait, Request.wait, Group.member)
can be interrupted by a signal. All other calls return first. A child of os.fork cannot use the
library that its parent has used.
"""

import ctypes
import enum
import itertools
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

__all__ = [
    "Code", "Error", "Timeout", "Node", "Process", "Export", "Import", "Word", "Notification",
    "Request", "Group",
    "block_notifications", "open", "poll_fd", "run_handlers", "unblock_notifications",
]

WORD = 4


class Code(enum.IntEnum):
    """What went wrong. The numbers never change."""

    SUCCESS = 0
    BAD_ALIGNMENT = -1
    BUF_ALREADY_EXISTS = -2
    BAD_IBUF_STATE = -3
    BAD_RBUF_STATE = -4
    BAD_PROXY_EXTENSION = -5
    BAD_PROXY_ADDR = -6
    BAD_SIZE = -7
    BAD_ARG = -8
    NOT_IMPLEMENTED = -9
    UNBLOCKED_NOTIFICATIONS = -10
    BLOCKED_NOTIFICATIONS = -11
    NO_PHYS_DEST_SPACE = -12
    NO_VIRT_DEST_SPACE = -13
    NO_MEM = -14
    NO_SUCH_NODE = -15
    NO_SUCH_PROCESS = -16
    NOT_IN_HANDLER = -17
    OVERLAPPED_BUFS = -18
    IN_PROGRESS = -19
    NO_SUCH_ERROR = -20
    NO_PARENT = -21
    BAD_ASYNC_HANDLE = -22
    STALE_HANDLE = -23
    NO_RIGHTS = -64
    PEER_GONE = -65
    REVOKED = -66
    STALE_IMPORT = -67
    NOT_REDIRECTABLE = -68
    TIMEOUT = -69
    OUTCOME_UNKNOWN = -70
    NO_DAEMON = -71
    UNREACHABLE = -72
    CLOSED = -73
    PROTOCOL = -74
    BAD_CONFIG = -75
    NO_CREDIT = -76
    NO_SUCH_SESSION = -77
    CANCELED = -78
    UNKNOWN = -79
    NAME_TAKEN = -80
    BAD_NAME = -81


class Error(Exception):
    """A call that failed. `code` is a Code, `text` says what was tried, on what, and why."""

    def __init__(self, code: int, text: str):
        try:
            self.code: int = Code(code)
        except ValueError:
            self.code = code
        self.text = text
        super().__init__(text)

    def matches(self, code: int) -> bool:
        """Reports whether the error has this code, or one that is of its kind: Code.REVOKED is
        also Code.BAD_IBUF_STATE."""
        return self.code == code or bool(_lib().vmmcx_error_is(int(self.code), int(code)))


class Timeout(Error, TimeoutError):
    """A wait that has reached its time limit."""


class _NodeID(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64)]


class _Handle(ctypes.Structure):
    _fields_ = [("value", ctypes.c_uint64)]


class _AsyncHandle(ctypes.Structure):
    _fields_ = [("values", ctypes.c_uint64 * 4)]


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)

_SIGNATURES = {
    "vmmc_MyHostName": (ctypes.c_char_p, []),
    "vmmc_MyNode": (_NodeID, []),
    "vmmc_MyPid": (ctypes.c_uint32, []),
    "vmmc_AllHosts": (ctypes.c_int, [ctypes.POINTER(ctypes.c_uint32),
                                     ctypes.POINTER(ctypes.POINTER(_NodeID))]),
    "vmmc_SessionHosts": (ctypes.c_int, [ctypes.POINTER(ctypes.c_uint32),
                                         ctypes.POINTER(ctypes.POINTER(_NodeID))]),
    "vmmc_NameToNode": (_NodeID, [ctypes.c_char_p]),
    "vmmc_NodeToName": (ctypes.c_char_p, [_NodeID]),
    "vmmc_Parent": (ctypes.c_int, [ctypes.POINTER(_NodeID), ctypes.POINTER(ctypes.c_uint32)]),
    "vmmc_Spawn": (ctypes.c_int, [ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p), _NodeID,
                                  ctypes.POINTER(ctypes.c_uint32)]),
    "vmmc_ExportRecvBuf": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32,
                                          _HANDLER, ctypes.c_uint32, ctypes.c_uint32,
                                          ctypes.POINTER(_Handle)]),
    "vmmc_UnexportRecvBuf": (ctypes.c_int, [_Handle]),
    "vmmc_PostRedir": (ctypes.c_int, [_Handle, ctypes.c_uint32, ctypes.c_uint32,
                                      ctypes.c_void_p]),
    "vmmc_EndRedir": (ctypes.c_int, [_Handle, ctypes.POINTER(ctypes.c_uint32),
                                     ctypes.POINTER(ctypes.c_uint32)]),
    "vmmc_DataEnd": (ctypes.c_int, [_Handle]),
    "vmmc_ClearDataEnd": (None, [_Handle]),
    "vmmc_ImportRecvBufAsync": (ctypes.c_int, [_NodeID, ctypes.c_uint32, ctypes.c_uint32,
                                               ctypes.POINTER(_Handle)]),
    "vmmc_ImportRecvBufStatus": (ctypes.c_int, [ctypes.POINTER(_Handle),
                                                ctypes.POINTER(ctypes.c_void_p),
                                                ctypes.POINTER(ctypes.c_uint32)]),
    "vmmc_UnimportRecvBuf": (ctypes.c_int, [_Handle]),
    "vmmc_SendData": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]),
    "vmmc_SendDataNotify": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]),
    "vmmc_GetData": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]),
    "vmmc_SendDataAsync": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32,
                                          ctypes.POINTER(_AsyncHandle)]),
    "vmmc_SendDataAsyncNotify": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p,
                                                ctypes.c_uint32, ctypes.POINTER(_AsyncHandle)]),
    "vmmc_GetDataAsync": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32,
                                         ctypes.POINTER(_AsyncHandle)]),
    "vmmc_AsyncStatus": (ctypes.c_int, [ctypes.POINTER(_AsyncHandle)]),
    "vmmc_BlockNotifications": (None, []),
    "vmmc_UnblockNotifications": (ctypes.c_int, []),
    "vmmcx_alloc": (ctypes.c_void_p, [ctypes.c_size_t]),
    "vmmcx_free": (ctypes.c_int, [ctypes.c_void_p]),
    "vmmcx_last_error": (ctypes.c_char_p, []),
    "vmmcx_error_is": (ctypes.c_int, [ctypes.c_int, ctypes.c_int]),
    "vmmcx_fence": (ctypes.c_int, [ctypes.c_void_p]),
    "vmmcx_fetch_add": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32,
                                       ctypes.POINTER(ctypes.c_int32)]),
    "vmmcx_swap": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32,
                                  ctypes.POINTER(ctypes.c_int32)]),
    "vmmcx_compare_and_swap": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32,
                                              ctypes.POINTER(ctypes.c_int32)]),
    "vmmcx_fetch_add64": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int64,
                                         ctypes.POINTER(ctypes.c_int64)]),
    "vmmcx_swap64": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int64,
                                    ctypes.POINTER(ctypes.c_int64)]),
    "vmmcx_compare_and_swap64": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                                ctypes.POINTER(ctypes.c_int64)]),
    "vmmcx_publish": (ctypes.c_int, [_Handle, ctypes.c_char_p]),
    "vmmcx_unpublish": (ctypes.c_int, [_Handle, ctypes.c_char_p]),
    "vmmcx_import_name": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(_Handle),
                                         ctypes.POINTER(ctypes.c_void_p),
                                         ctypes.POINTER(ctypes.c_uint32)]),
    "vmmcx_group": (ctypes.c_int, [ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int)]),
    "vmmcx_member": (ctypes.c_int, [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_NodeID),
                                    ctypes.POINTER(ctypes.c_uint32)]),
    "vmmcx_barrier": (ctypes.c_int, [ctypes.c_int]),
    "vmmcx_leave": (ctypes.c_int, [ctypes.c_int]),
    "vmmcx_poll_fd": (ctypes.c_int, []),
    "vmmcx_run_handlers": (ctypes.c_int, []),
    "vmmcx_wait_word": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int,
                                       ctypes.POINTER(_Handle)]),
}

_SONAME = "libvmmc.so.2"
_FLAGS = {"w": 1, "r": 2, "rw": 3}
_REDIRECTABLE = 4

_library: Any = None
_library_lock = threading.Lock()


def _lib() -> Any:
    """The C library, which is loaded by the first call."""
    global _library
    if _library is None:
        with _library_lock:
            if _library is None:
                _library = _load()
    return _library


def _load() -> Any:
    named = os.environ.get("VMMC_LIBRARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", _SONAME)
    places = [named] if named else [p for p in (beside,) if os.path.exists(p)] + [_SONAME]
    failures = []
    for place in places:
        try:
            lib = ctypes.CDLL(place)
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(lib, name)
                function.restype, function.argtypes = result, arguments
            return lib
        except (OSError, AttributeError) as e:
            failures.append(str(e))
    raise Error(Code.BAD_CONFIG, "load libvmmc: %s: install it (make -C c install), or let "
                "VMMC_LIBRARY name it" % "; ".join(failures))


def _last_error() -> str:
    return _lib().vmmcx_last_error().decode(errors="replace")


def _check(code: int) -> None:
    """Raises the error of a call of this thread that has just returned code."""
    if code < 0:
        raise (Timeout if code == Code.TIMEOUT else Error)(code, _last_error())


# The C library's thread for handlers sets `active` while it runs a handler of Python.
_in_handler = threading.local()

# What could not be closed yet: it was dropped in a handler, or while notifications were blocked.
# Appending to and popping from a list are atomic, so that finalizers need no lock.
_to_close: List[Callable[[], bool]] = []


def _close_later(close: Callable[[], bool]) -> None:
    """Closes what was dropped: now, or with a later call if it cannot be closed now."""
    if getattr(_in_handler, "active", False) or not close():
        _to_close.append(close)


def _close_dropped() -> None:
    if getattr(_in_handler, "active", False):
        return
    for _ in range(len(_to_close)):
        try:
            close = _to_close.pop(0)
        except IndexError:  # another thread was quicker
            return
        if not close():
            _to_close.append(close)


class _PyBuffer(ctypes.Structure):
    """Py_buffer of the stable ABI."""

    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None

_WRITABLE = 1  # PyBUF_WRITABLE


class _Pinned:
    """The bytes of an object with the buffer protocol. They neither move nor go before release.
    One that is dropped without release holds them for ever: importers may still write there."""

    __slots__ = ("_buffer", "_held", "address", "size")

    def __init__(self, obj: Any, writable: bool):
        self._held = False
        self._buffer = _PyBuffer()
        # Raises TypeError or BufferError: no buffer, not contiguous, or read-only.
        _get_buffer(obj, ctypes.byref(self._buffer), _WRITABLE if writable else 0)
        self._held = True
        self.address = self._buffer.buf or 0
        self.size = self._buffer.len

    def release(self) -> None:
        if self._held:
            self._held = False
            _release_buffer(ctypes.byref(self._buffer))

    def __enter__(self) -> "_Pinned":
        return self

    def __exit__(self, *_: Any) -> None:
        self.release()


class Node:
    """A machine with a node of the cluster. Nodes compare by ==."""

    __slots__ = ("_id", "_name")

    def __init__(self, node_id: _NodeID):
        self._id = node_id
        self._name: Optional[str] = None

    @property
    def name(self) -> str:
        if self._name is None:
            name = _lib().vmmc_NodeToName(self._id)
            if name is None:
                raise Error(Code.NO_SUCH_NODE, _last_error())
            self._name = name.decode(errors="surrogateescape")
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._id.value == other._id.value

    def __hash__(self) -> int:
        return hash(self._id.value)

    def __repr__(self) -> str:
        return "<vmmc.Node %s>" % self.name


class Notification:
    """What a handler is told: the export, the offset of the message's last word, and its value."""

    __slots__ = ("export", "offset", "value")

    def __init__(self, export: "Export", offset: int, value: int):
        self.export, self.offset, self.value = export, offset, value


# Exports with handlers, by id(). Single operations on a dictionary are atomic, and no finalizer
# may wait for a lock.
_notified: "Dict[int, weakref.ref[Export]]" = {}
_keys = itertools.count()  # of these: the id of an object may be given out again


@_HANDLER
def _handle(at: int, value: int) -> None:
    """The handler of all exports. C may call it at any time, so it is never freed."""
    _in_handler.active = True
    try:
        for ref in list(_notified.values()):
            export = ref()
            if export is None or not 0 <= at - export._address < export.size:
                continue
            handler = export._handler
            if handler is not None:
                handler(Notification(export, at - export._address, value))
                return
    finally:
        _in_handler.active = False


_NO_HANDLER = _HANDLER()


_WAIT = 50  # milliseconds of a wait in C, which a signal of Python does not interrupt


class Word:
    """An aligned word of an export. Loads and stores of it are atomic."""

    __slots__ = ("_export", "_word", "offset")

    def __init__(self, export: "Export", offset: int):
        _check_range("word", offset, WORD, export.size)
        self._export, self.offset = export, offset
        self._word = ctypes.c_int32.from_address(export._address + offset)

    @property
    def value(self) -> int:
        with self._export._pin("load a word"):
            return self._word.value

    @value.setter
    def value(self, value: int) -> None:
        with self._export._pin("store a word"):
            self._word.value = value

    def wait(self, old: int, timeout: Optional[float] = None,
             peer: Optional["Import"] = None) -> int:
        """Waits until the word's value is not old, and returns it. timeout is in seconds. With an
        import from the process that owes the word, the wait also ends when that import ends."""
        old = ctypes.c_int32(old).value
        return self._wait(lambda v: v != old, "changes from %d" % old, timeout, peer)

    def wait_for(self, value: int, timeout: Optional[float] = None,
                 peer: Optional["Import"] = None) -> None:
        """Waits until the word has this value."""
        value = ctypes.c_int32(value).value
        self._wait(lambda v: v == value, "is %d" % value, timeout, peer)

    def _wait(self, ready: Callable[[int], bool], what: str, timeout: Optional[float],
              peer: Optional["Import"]) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        handle = None if peer is None else ctypes.byref(peer._handle)
        while True:
            v = self.value
            if ready(v):
                return v
            left = _WAIT if end is None else int(min(_WAIT, 1000 * (end - time.monotonic()) + 1))
            if left <= 0:
                raise Timeout(Code.TIMEOUT, "wait until the word at %d of buffer %d %s: the time "
                              "limit of %g s was reached, the value is %d"
                              % (self.offset, self._export.id, what, timeout, v))
            # Another thread may close the export meanwhile: C looks at memory that is still there.
            with self._export._pin("wait for a word"):
                code = _lib().vmmcx_wait_word(self._export._address + self.offset, v, left, handle)
            if code == Code.BAD_ARG:  # the address was in the export until another thread closed it
                raise self._export._ended("wait for a word")
            if code != Code.TIMEOUT:
                _check(code)


def _milliseconds(timeout: Optional[float]) -> int:
    """A time limit as the C library has it."""
    return -1 if timeout is None else max(0, int(min(1000 * timeout + 0.999, 0x7fffffff)))


def _in_turns(call: Callable[[int], int], timeout: Optional[float]) -> int:
    """Waits by a call that takes milliseconds, in turns, so that a signal of Python can end it."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _WAIT if end is None else int(min(_WAIT, 1000 * (end - time.monotonic()) + 1))
        code = call(max(left, 0))
        if code != Code.TIMEOUT or end is not None and time.monotonic() >= end:
            return code


def _pauses(timeout: Optional[float]) -> Any:
    """Yields until the time limit, and sleeps longer the longer the caller has waited."""
    begin = time.monotonic()
    pause = 0.0
    while True:
        yield
        waited = time.monotonic() - begin
        if timeout is not None and waited >= timeout:
            yield  # what has come at the last moment counts
            return
        if waited > 0.0005:  # before that it polls, and lets other threads run
            pause = min(max(pause * 2, 0.00005), 0.005)
        time.sleep(pause if timeout is None else min(pause, timeout - waited))


def _check_range(what: str, offset: int, n: int, size: int) -> None:
    if offset % WORD != 0:
        raise Error(Code.BAD_ALIGNMENT,
                    "%s: the offset %d is not a multiple of %d" % (what, offset, WORD))
    if offset < 0 or n > size - offset:
        raise Error(Code.BAD_PROXY_ADDR, "%s: %d bytes at %d do not lie within the %d bytes of the "
                    "buffer" % (what, n, offset, size))


def _check_size(what: str, n: int) -> None:
    if n == 0 or n % WORD != 0 or n // WORD > 0xffffffff:
        raise Error(Code.BAD_SIZE, "%s: %d bytes are not one or more words of %d"
                    % (what, n, WORD))


class Export:
    """Memory that other processes import. It ends with close, with the end of a `with` block, or
    when the last reference to it goes. Until then it holds the memory."""

    def __init__(self, id: int, buffer: Any, handler: Optional[Callable[[Notification], None]],
                 access: str, redirectable: bool):
        if access not in _FLAGS:
            raise Error(Code.BAD_ARG, 'export buffer %d: access is %r, and not "r", "w" or "rw"'
                        % (id, access))
        if not 0 <= id <= 0xffffffff:
            raise Error(Code.BAD_ARG, "export buffer %d: the id is not within 32 bits" % id)
        _close_dropped()
        lib = _lib()
        pinned = _Pinned(buffer, True)
        handle = _Handle()
        key = next(_keys)
        posted: List[_Pinned] = []  # memory that messages may be redirected to
        end = _ender(handle, pinned, key, posted)
        try:
            _check_size("export buffer %d" % id, pinned.size)
            self.id = id
            self.size = pinned.size
            self._address = pinned.address
            self._handler = handler
            self._key = key
            self._memory = pinned
            self._object = buffer
            self._handle = handle
            self._posted = posted
            self._drop = weakref.finalize(self, _close_later, end)
            if handler is not None:  # all this is there before the first notification can come
                _notified[key] = weakref.ref(self)
            _check(lib.vmmc_ExportRecvBuf(
                pinned.address, pinned.size // WORD, id,
                _NO_HANDLER if handler is None else _handle,
                _FLAGS[access] | (_REDIRECTABLE if redirectable else 0), 0,
                ctypes.byref(handle)))
        except BaseException:  # KeyboardInterrupt too, which comes after the call
            drop = getattr(self, "_drop", None)
            if drop is None or drop.detach() is not None:
                _close_later(end)
            raise

    def word(self, offset: int) -> Word:
        """The word at an offset in bytes."""
        return Word(self, offset)

    def post_redirect(self, buffer: Any, offset: int = 0) -> None:
        """Redirects the next message: what it brings for the bytes of this export from offset on is
        stored in the buffer, which is held until end_redirect or the end of the export. What came
        before stays in the export. One redirection at a time can be posted."""
        self._check_open("redirect the next message")
        pinned = _Pinned(buffer, True)
        try:
            what = "redirect the next message of buffer %d" % self.id
            _check_size(what, pinned.size)
            _check_range(what, offset, pinned.size, self.size)
            self._posted.append(pinned)  # before a message can come, whatever interrupts this
            _check(_lib().vmmc_PostRedir(self._handle, offset // WORD, pinned.size // WORD,
                                         pinned.address))
        except (Error, TypeError):  # neither comes after a redirection was posted
            if pinned in self._posted:
                self._posted.remove(pinned)
            pinned.release()
            raise

    def end_redirect(self) -> Tuple[int, int]:
        """Ends the redirection, and returns how many bytes it has put into the buffer, and where
        they begin there. Other bytes of the message are in the export."""
        self._check_open("end a redirection")
        words, first = ctypes.c_uint32(), ctypes.c_uint32()
        _check(_lib().vmmc_EndRedir(self._handle, ctypes.byref(words), ctypes.byref(first)))
        if self._posted:
            self._posted.pop(0).release()
        return words.value * WORD, first.value * WORD

    def data_end(self) -> Optional[int]:
        """The offset of the last word of the last message, or None if there was none since the
        export or clear_data_end. Only a redirectable export has it."""
        self._check_open("read the end of data")
        word = _lib().vmmc_DataEnd(self._handle)
        if word == Code.NO_SUCH_ERROR:
            return None
        _check(word)
        return word * WORD

    def clear_data_end(self) -> None:
        """Forgets the end of data: data_end is None until the next message."""
        self._check_open("clear the end of data")
        _lib().vmmc_ClearDataEnd(self._handle)

    def publish(self, name: str) -> None:
        """Gives the export a name: "queue" is the node's, "n1/queue" that of node n1, and "/queue"
        the cluster's. It may have several."""
        self._check_open("publish")
        _check(_lib().vmmcx_publish(self._handle, name.encode(errors="surrogateescape")))

    def unpublish(self, name: str) -> None:
        """Takes a name of the export back. Those that are left end with the export."""
        self._check_open("unpublish")
        _check(_lib().vmmcx_unpublish(self._handle, name.encode(errors="surrogateescape")))

    def close(self) -> None:
        """Ends the export. Importers' calls fail from then on. The memory is free to change."""
        if not self._drop.alive:
            return
        code = _lib().vmmc_UnexportRecvBuf(self._handle)
        if code != Code.BAD_RBUF_STATE:  # another thread was quicker
            _check(code)
        if self._drop.detach() is not None:
            _notified.pop(self._key, None)
            self._object = None
            self._memory.release()
            _release_all(self._posted)

    @property
    def closed(self) -> bool:
        return not self._drop.alive

    def _ended(self, what: str) -> Error:
        return Error(Code.BAD_RBUF_STATE, "%s of buffer %d: the export has ended"
                     % (what, self.id))

    def _check_open(self, what: str) -> Any:
        """The memory of the export. It may go when the caller drops it and the export is closed."""
        memory = self._object
        if memory is None:
            raise self._ended(what)
        return memory

    def _pin(self, what: str) -> memoryview:
        """Holds the memory where the export has it, until the view is released. What was closed
        before it was held may have moved, as a bytearray does when its length changes."""
        view = memoryview(self._check_open(what))
        if self._object is None:
            view.release()
            raise self._ended(what)
        return view

    def __enter__(self) -> "Export":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _release_all(posted: "List[_Pinned]") -> None:
    """Lets go of the memory of redirections of an export that has ended."""
    while posted:
        posted.pop().release()


def _ender(handle: _Handle, memory: _Pinned, key: int,
           posted: "List[_Pinned]") -> Callable[[], bool]:
    """Ends an export that was dropped, and reports whether it has ended."""

    def end() -> bool:
        _notified.pop(key, None)
        if handle.value != 0:
            code = _lib().vmmc_UnexportRecvBuf(handle)
            if code not in (Code.SUCCESS, Code.BAD_RBUF_STATE, Code.CLOSED):
                return False  # importers may still write
        memory.release()
        _release_all(posted)
        return True

    return end


class Import:
    """Memory of another process. It ends with close, with the end of a `with` block, or when the
    last reference to it goes."""

    node: Optional[Node]
    pid: Optional[int]
    id: Optional[int]
    name: Optional[str]

    def __init__(self, node: Optional[Node], pid: Optional[int], id: Optional[int],
                 timeout: Optional[float], name: Optional[str] = None):
        for what, value in (("pid", pid), ("id", id)):
            if value is not None and not 0 <= value <= 0xffffffff:
                raise Error(Code.BAD_ARG, "import buffer %s of process %s: the %s is not within 32 "
                            "bits" % (id, pid, what))
        _close_dropped()
        self.node, self.pid, self.id, self.name = node, pid, id, name
        handle, address, words = _Handle(), ctypes.c_void_p(), ctypes.c_uint32()
        end = _closer(handle)
        find = self._find if name is None else self._find_name
        try:
            _check(find(handle, ctypes.byref(address), ctypes.byref(words), timeout))
            self.size = words.value * WORD
            self._address = address.value
            self._handle = handle
            self._drop = weakref.finalize(self, _close_later, end)
        except BaseException:  # KeyboardInterrupt too
            _close_later(end)
            raise

    def _find(self, handle: _Handle, address: Any, words: Any, timeout: Optional[float]) -> int:
        lib = _lib()
        _check(lib.vmmc_ImportRecvBufAsync(self.node._id, self.pid, self.id, ctypes.byref(handle)))
        # Asked for in turns, because a wait in C cannot be interrupted by a signal of Python.
        for _ in _pauses(timeout):
            code = lib.vmmc_ImportRecvBufStatus(ctypes.byref(handle), address, words)
            if code != Code.IN_PROGRESS:
                return code
        raise Timeout(Code.TIMEOUT, "import %s: no such export within %g s" % (self._what, timeout))

    def _find_name(self, handle: _Handle, address: Any, words: Any,
                   timeout: Optional[float]) -> int:
        name = self.name.encode(errors="surrogateescape")
        return _in_turns(lambda ms: _lib().vmmcx_import_name(name, ms, ctypes.byref(handle),
                                                             address, words), timeout)

    @property
    def _what(self) -> str:
        if self.name is not None:
            return "buffer %r" % self.name
        return "buffer %d of process %d on %s" % (self.id, self.pid, self.node.name)

    def send(self, data: Any, offset: int = 0, notify: bool = False) -> None:
        """Stores data in the exporter's memory. With notify the exporter's handler runs after it.
        It returns when data may change."""
        lib = _lib()
        with _Pinned(data, False) as source:
            self._check(source.size, "send", offset)
            address, _copy = _aligned(source)
            call = lib.vmmc_SendDataNotify if notify else lib.vmmc_SendData
            _check(call(address, self._address + offset, source.size // WORD))

    def send_async(self, data: Any, offset: int = 0, notify: bool = False) -> "Request":
        """Begins a send, and returns at once. data must not change until the request is over."""
        lib = _lib()
        source = _Pinned(data, False)
        try:
            self._check(source.size, "send", offset)
            address, copy = _aligned(source)
        except BaseException:
            source.release()
            raise
        call = lib.vmmc_SendDataAsyncNotify if notify else lib.vmmc_SendDataAsync
        return Request(call, address, self._address + offset, source, copy)

    def get_into_async(self, buffer: Any, offset: int = 0) -> "Request":
        """Begins to fetch as many bytes as the buffer has. They are there when the request is
        over."""
        target = _Pinned(buffer, True)
        try:
            self._check(target.size, "get", offset)
            if target.address % WORD != 0:
                raise Error(Code.BAD_ALIGNMENT,
                            "get: the buffer's address is not a multiple of %d" % WORD)
        except BaseException:
            target.release()
            raise
        return Request(_lib().vmmc_GetDataAsync, target.address, self._address + offset, target,
                       None)

    def get_into(self, buffer: Any, offset: int = 0) -> None:
        """Fetches as many bytes of the exporter's memory as the writable buffer has."""
        with _Pinned(buffer, True) as target:
            self._check(target.size, "get", offset)
            if target.address % WORD != 0:
                raise Error(Code.BAD_ALIGNMENT,
                            "get: the buffer's address is not a multiple of %d" % WORD)
            _check(_lib().vmmc_GetData(target.address, self._address + offset,
                                       target.size // WORD))

    def get(self, n: Optional[int] = None, offset: int = 0) -> bytearray:
        """Fetches n bytes of the exporter's memory, or all from the offset on."""
        data = bytearray(max(self.size - offset, 0) if n is None else n)
        self.get_into(data, offset)
        return data

    def fence(self) -> None:
        """Returns when all that this process has sent to the exporter has arrived there."""
        self._check_open("fence")
        _check(_lib().vmmcx_fence(self._address))

    def fetch_add(self, offset: int, value: int) -> int:
        """Adds to a word of the exporter's memory, as one step for all that change it, and returns
        what it was."""
        old = ctypes.c_int32()
        _check(_lib().vmmcx_fetch_add(self._word(offset), value, ctypes.byref(old)))
        return old.value

    def swap(self, offset: int, value: int) -> int:
        """Stores a word in the exporter's memory, and returns what it was."""
        old = ctypes.c_int32()
        _check(_lib().vmmcx_swap(self._word(offset), value, ctypes.byref(old)))
        return old.value

    def compare_and_swap(self, offset: int, expected: int, value: int) -> int:
        """Stores a word in the exporter's memory if it is what was expected, and returns what it
        was: it was stored if that is expected."""
        old = ctypes.c_int32()
        _check(_lib().vmmcx_compare_and_swap(self._word(offset), expected, value,
                                             ctypes.byref(old)))
        return old.value

    def fetch_add64(self, offset: int, value: int) -> int:
        """fetch_add of 64 bits, whose address is a multiple of 8 in the exporter's memory."""
        old = ctypes.c_int64()
        _check(_lib().vmmcx_fetch_add64(self._word(offset, 8), value, ctypes.byref(old)))
        return old.value

    def swap64(self, offset: int, value: int) -> int:
        """swap of 64 bits."""
        old = ctypes.c_int64()
        _check(_lib().vmmcx_swap64(self._word(offset, 8), value, ctypes.byref(old)))
        return old.value

    def compare_and_swap64(self, offset: int, expected: int, value: int) -> int:
        """compare_and_swap of 64 bits."""
        old = ctypes.c_int64()
        _check(_lib().vmmcx_compare_and_swap64(self._word(offset, 8), expected, value,
                                               ctypes.byref(old)))
        return old.value

    def _word(self, offset: int, size: int = WORD) -> int:
        self._check(size, "change a word", offset)
        return self._address + offset

    def close(self) -> None:
        """Ends the import."""
        if self._drop.alive:
            code = _lib().vmmc_UnimportRecvBuf(self._handle)
            if code != Code.BAD_IBUF_STATE:  # another thread was quicker
                _check(code)
            self._drop.detach()

    @property
    def closed(self) -> bool:
        return not self._drop.alive

    def _check_open(self, what: str) -> None:
        if not self._drop.alive:
            raise Error(Code.CLOSED, "%s to or from %s: the import was closed"
                        % (what, self._what))

    def _check(self, n: int, what: str, offset: int) -> None:
        self._check_open(what)
        _check_size(what, n)
        _check_range(what, offset, n, self.size)

    def __enter__(self) -> "Import":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _aligned(source: _Pinned) -> Tuple[int, Any]:
    """The address of the bytes, or of an aligned copy, and what holds the copy."""
    if source.address % WORD == 0:
        return source.address, None
    copy = ctypes.create_string_buffer(source.size + WORD)
    address = (ctypes.addressof(copy) + WORD - 1) & -WORD
    ctypes.memmove(address, source.address, source.size)
    return address, copy


class Request:
    """An asynchronous send or get. It holds the memory until it is over, also when the program
    drops it before."""

    def __init__(self, call: Any, near: int, far: int, memory: _Pinned, copy: Any):
        _close_dropped()
        self._handle = _AsyncHandle()
        try:
            _check(call(near, far, memory.size // WORD, ctypes.byref(self._handle)))
        except Error:
            memory.release()
            raise
        self._drop = weakref.finalize(self, _close_later, _releaser(self._handle, memory, copy))
        self._drop.atexit = False  # the kernel frees it
        self._memory = memory

    def done(self) -> bool:
        """Reports whether the request is over. It raises what the request has failed with."""
        code = _lib().vmmc_AsyncStatus(ctypes.byref(self._handle))
        if code == Code.IN_PROGRESS:
            return False
        if self._drop.detach() is not None:
            self._memory.release()
        _check(code)
        return True

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until the request is over. timeout is in seconds."""
        for _ in _pauses(timeout):
            if self.done():
                return
        raise Timeout(Code.TIMEOUT, "wait for a request: it is not over after %g s" % timeout)


def _releaser(handle: _AsyncHandle, memory: _Pinned, copy: Any) -> Callable[[], bool]:
    """Releases the memory of a request that was dropped, and reports whether that is over."""

    def end() -> bool:
        if _lib().vmmc_AsyncStatus(ctypes.byref(handle)) == Code.IN_PROGRESS:
            return False
        del held[:]
        memory.release()
        return True

    held = [copy]
    return end


class Group:
    """The programs that one `vmmc run -n` has started. A program alone is a group of one."""

    def __init__(self) -> None:
        rank, size = ctypes.c_int(), ctypes.c_int()
        _check(_lib().vmmcx_group(ctypes.byref(rank), ctypes.byref(size)))
        self.rank, self.size = rank.value, size.value

    def member(self, rank: int, timeout: Optional[float] = None) -> Tuple[Node, int]:
        """Waits until the member of a rank has joined, and returns its node and pid."""
        node, pid = _NodeID(), ctypes.c_uint32()
        _check(_in_turns(lambda ms: _lib().vmmcx_member(rank, ms, ctypes.byref(node),
                                                        ctypes.byref(pid)), timeout))
        return Node(node), pid.value

    def barrier(self, timeout: Optional[float] = None) -> None:
        """Returns when all members have called it. A signal of Python does not end the wait."""
        _check(_lib().vmmcx_barrier(_milliseconds(timeout)))

    def leave(self, timeout: Optional[float] = None) -> None:
        """Ends the membership in order."""
        _check(_lib().vmmcx_leave(_milliseconds(timeout)))


def _closer(handle: _Handle) -> Callable[[], bool]:
    """Ends an import that was dropped, and reports whether it has ended."""

    def end() -> bool:
        return handle.value == 0 or _lib().vmmc_UnimportRecvBuf(handle) != Code.NOT_IN_HANDLER

    return end


def _freer(address: int) -> Callable[[], bool]:
    def free() -> bool:
        return _lib().vmmcx_free(address) in (Code.SUCCESS, Code.BAD_ARG, Code.CLOSED)

    return free


class Process:
    """This process as a member of its node. All objects of this class are the same member, which
    leaves the node when the process ends. A `with` block closes what this object has exported and
    imported."""

    def __init__(self) -> None:
        self._hosts("vmmc_AllHosts")  # joins the node, or fails with a code
        lib = _lib()
        self.node = Node(lib.vmmc_MyNode())
        self.pid: int = lib.vmmc_MyPid()
        self.host: str = lib.vmmc_MyHostName().decode(errors="surrogateescape")
        self._open: "weakref.WeakSet[Any]" = weakref.WeakSet()

    @staticmethod
    def _hosts(call: str) -> List[Node]:
        n, array = ctypes.c_uint32(), ctypes.POINTER(_NodeID)()
        _check(getattr(_lib(), call)(ctypes.byref(n), ctypes.byref(array)))
        return [Node(_NodeID(array[i].value)) for i in range(n.value)]

    def nodes(self) -> List[Node]:
        """All nodes of the cluster."""
        return self._hosts("vmmc_AllHosts")

    def session_nodes(self) -> List[Node]:
        """The nodes of the session, in the order of VMMCHOSTS where that is set."""
        return self._hosts("vmmc_SessionHosts")

    def find(self, name: str) -> Node:
        """The node of a name."""
        node = _lib().vmmc_NameToNode(name.encode(errors="surrogateescape"))
        if node.value == 0:
            raise Error(Code.NO_SUCH_NODE, _last_error())
        return Node(node)

    def parent(self) -> Tuple[Node, int]:
        """The node and the pid of the process that has spawned this one."""
        node, pid = _NodeID(), ctypes.c_uint32()
        _check(_lib().vmmc_Parent(ctypes.byref(node), ctypes.byref(pid)))
        return Node(node), pid.value

    def spawn(self, argv: Sequence[str], node: Optional[Node] = None) -> int:
        """Starts a program, whose path is argv[0], on a node, and returns its pid."""
        words = [os.fsencode(w) for w in argv]
        array = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        pid = ctypes.c_uint32()
        _check(_lib().vmmc_Spawn(words[0] if words else None, array, (node or self.node)._id,
                                 ctypes.byref(pid)))
        return pid.value

    def alloc(self, size: int) -> memoryview:
        """Zeroed memory in pages of its own, as a memoryview of bytes. Importers on this node map
        it when all of it is exported: a send of theirs is a copy into it. It is freed when the last
        view of it goes; numpy.frombuffer(view, dtype) makes one. A child of os.fork has not this
        memory: its first access ends the child."""
        if size < 0:
            raise Error(Code.BAD_SIZE, "allocate memory: %d bytes" % size)
        _close_dropped()
        address = _lib().vmmcx_alloc(size)
        if address is None:
            bad = size == 0 or size % WORD != 0
            raise Error(Code.BAD_SIZE if bad else Code.NO_MEM, _last_error())
        array = (ctypes.c_ubyte * size).from_address(address)
        # When the process ends the kernel frees it: a view may outlive this module.
        weakref.finalize(array, _close_later, _freer(address)).atexit = False
        return memoryview(array).cast("B")

    def export(self, id: int, buffer: Any, handler: Optional[Callable[[Notification], None]] = None,
               access: str = "rw", redirectable: bool = False) -> Export:
        """Exports a writable, contiguous buffer under an id of the caller's choice. Importers may
        read ("r"), write ("w"), or both. If the export is redirectable, messages can be redirected
        to other memory, and one process at a time may import it. The handler runs for each message
        with a notification, one at a time, on a thread of the library. What it raises goes to
        sys.unraisablehook. A handler may send and get, and neither export, import nor close."""
        export = Export(id, buffer, handler, access, redirectable)
        self._open.add(export)
        return export

    def import_buffer(self, node: Node, pid: int, id: int,
                      timeout: Optional[float] = None) -> Import:
        """Imports the buffer that a process exports under an id, and waits until it is exported.
        timeout is in seconds."""
        im = Import(node, pid, id, timeout)
        self._open.add(im)
        return im

    def import_name(self, name: str, timeout: Optional[float] = None) -> Import:
        """Imports the buffer of a name, and waits until it is published. timeout is in seconds."""
        im = Import(None, None, None, timeout, name)
        self._open.add(im)
        return im

    def group(self) -> Group:
        """The group of this program. The first call joins it."""
        return Group()

    def close(self) -> None:
        """Ends the exports and imports that were made by this object: all of them, also where one
        cannot be ended. The error is then the first one's, whose close may be called again."""
        _close_dropped()
        first = None
        for one in list(self._open):
            try:
                one.close()
            except Error as e:
                first = first or e
        if first is not None:
            raise first

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def open() -> Process:
    """Joins the node at VMMC_SOCKET, with the first call, and returns this process."""
    return Process()


def poll_fd() -> int:
    """A descriptor that is readable while a handler waits to be run, for select and for
    loop.add_reader of asyncio. It is called before the first export with a handler; from then on
    handlers run in run_handlers alone, on the caller's thread."""
    fd = _lib().vmmcx_poll_fd()
    _check(fd)
    return fd


def run_handlers() -> bool:
    """Runs a handler that waits, and reports whether one has run."""
    code = _lib().vmmcx_run_handlers()
    _check(code)
    return code > 0


def block_notifications() -> None:
    """Holds handlers back until unblock_notifications is called as often."""
    _lib().vmmc_BlockNotifications()


def unblock_notifications() -> bool:
    """Takes a level of blocking away, and reports whether handlers run again."""
    code = _lib().vmmc_UnblockNotifications()
    _check(code)
    return code > 0
