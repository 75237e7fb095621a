// Assertions about our own code, on in every build. They are for service processes, which are
// restarted when they end; the client library never ends a program and therefore never uses them.
// Nothing that a client wrote is ever asserted.

#ifndef FRMPS_SHM_BASE_BUG_H
#define FRMPS_SHM_BASE_BUG_H

#include <stdio.h>
#include <stdlib.h>

#define frmps_bug_on(condition)                                                                              \
	do {                                                                                                 \
		if (__builtin_expect(!!(condition), 0)) {                                                    \
			fprintf(stderr, "frmps: bug at %s:%d: %s\n", __FILE__, __LINE__, #condition);        \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

#endif
