// What other users may run: a checkout may lie in a folder that only root may enter, as root's home
// is.

#ifndef FRMPS_TESTS_LIB_REACH_H
#define FRMPS_TESTS_LIB_REACH_H

/**
 * As root: copies the service, its tools, the library and the modules of kernels into a folder
 * under /tmp that everybody may enter, and names the copies in the FRMPS_TEST_* variables.
 * Otherwise, and where these variables name nothing that was built, does nothing. Ends the process
 * if that fails.
 */
void reach_open(void);
/** Removes the copies. */
void reach_close(void);

#endif
