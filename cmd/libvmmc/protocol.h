/*
 * The version of internal/nodeproto, which a node's daemon must speak: mark.go compares them. It is
 * in this folder because the go command notices changes of headers only where they lie beside it.
 */
#define VMMC_PROTOCOL 6
