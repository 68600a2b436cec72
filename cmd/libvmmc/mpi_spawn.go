//go:build linux && cgo

package main

// #define _GNU_SOURCE
// #include <signal.h>
// #include <spawn.h>
// #include <stdlib.h>
//
// /* Starts a program with no signal blocked, whatever the thread has blocked that calls. */
// static int start_program(const char *path, char **argv, char **envp, const char *dir, pid_t *pid) {
//     posix_spawn_file_actions_t actions;
//     posix_spawnattr_t attributes;
//     sigset_t none;
//     int code = posix_spawn_file_actions_init(&actions);
//     if (code != 0) {
//         return code;
//     }
//     code = posix_spawnattr_init(&attributes);
//     if (code != 0) {
//         posix_spawn_file_actions_destroy(&actions);
//         return code;
//     }
//     sigemptyset(&none);
//     code = posix_spawnattr_setsigmask(&attributes, &none);
//     if (code == 0) {
//         code = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
//     }
//     if (code == 0) {
//         code = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
//     }
//     if (code == 0 && *dir) {
//         code = posix_spawn_file_actions_addchdir_np(&actions, dir);
//     }
//     if (code == 0) {
//         code = posix_spawn(pid, path, &actions, &attributes, argv, envp);
//     }
//     posix_spawnattr_destroy(&attributes);
//     posix_spawn_file_actions_destroy(&actions);
//     return code;
// }
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/starter"
)

func init() { starter.Use(startProgram) }

// startProgram starts a program that MPI_Comm_spawn names.
func startProgram(path string, args, env []string, dir string) (int, error) {
	var held []unsafe.Pointer
	defer func() {
		for _, p := range held {
			C.free(p)
		}
	}()
	text := func(s string) *C.char {
		p := C.CString(s)
		held = append(held, unsafe.Pointer(p))
		return p
	}
	list := func(words []string) **C.char {
		p := C.calloc(C.size_t(len(words)+1), C.size_t(unsafe.Sizeof((*C.char)(nil))))
		held = append(held, p)
		out := unsafe.Slice((**C.char)(p), len(words))
		for i, word := range words {
			out[i] = text(word)
		}
		return (**C.char)(p)
	}
	var pid C.pid_t
	if code := C.start_program(text(path), list(args), list(env), text(dir), &pid); code != 0 {
		return 0, syscall.Errno(code)
	}
	return int(pid), nil
}
