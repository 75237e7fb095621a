// A file system of one file whose program does not answer: closing a descriptor of the file waits
// for it, and so does who reads the page that the file has.

#ifndef FRMPS_TESTS_LIB_MUTE_H
#define FRMPS_TESTS_LIB_MUTE_H

#include <stdbool.h>

/** Once per process. Return: whether it could be mounted */
bool mute_new(void);
/** Return: a descriptor of the file. */
int mute_open(void);
/** From now on whoever closes one, or reads the page for the first time, waits. */
void mute_begin(void);
/** Whoever closes one later does not. */
void mute_stop(void);
/** Waits until somebody waits. */
void mute_await(void);
/** Unmounts it. */
void mute_end(void);

#endif
