// Assertions about the project's own code, on in every build. For service processes, which restart
// when they end; the client library never ends a program and therefore never uses assertions. No
// assertion depends on bytes that a client wrote.

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
