// A process without memory: malloc() finds none, neither at hand nor at the kernel. Only where no
// sanitizer has a malloc() of its own.

#ifndef FRMPS_TESTS_LIB_SCARCE_H
#define FRMPS_TESTS_LIB_SCARCE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCARCE_POSSIBLE 0
#else
#define SCARCE_POSSIBLE 1
#endif

void scarce_begin(void);
/** All is as before. */
void scarce_end(void);

#endif
