// A descriptor that takes long to close.

#ifndef FRMPS_TESTS_LIB_SLOW_H
#define FRMPS_TESTS_LIB_SLOW_H

/**
 * Whoever closes the last copy of it waits until all that was sent has arrived, which is never.
 * @ret_silent: the other end
 */
int slow_new(int *ret_silent);

/** Closes one that was not sent, without lingering. */
void slow_close(int fd);

#endif
