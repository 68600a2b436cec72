/* Functions of the program, and those of attributes. */
#ifndef MPICH_ATTRIBUTE_H
#define MPICH_ATTRIBUTE_H

#include "boundary.h"
#include "convert.h"

struct function {
    struct vmmcb_program_record head; /* for Go */
    any_function *user;
    any_function *proxy; /* calls user, which is not of C. NULL: it is of C. */
    int fortran;         /* user takes its arguments by reference */
    struct function *next;
};

/* The record of a function, which is the last one of this thread then. NULL: there is no memory. */
struct function *function_of(caller *call, any_function *user);

/* One of the last records of this thread. */
struct function *function_last(unsigned back);

#endif
