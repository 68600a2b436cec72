// Package containers tests what programs in containers need of the machine: programs and daemons in
// namespaces of their own, as container runtimes make them, and behind a filter of system calls.
package containers
