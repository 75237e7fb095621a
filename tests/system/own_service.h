// The service of one test, with a configuration of its own.

#ifndef FRMPS_TESTS_SYSTEM_OWN_SERVICE_H
#define FRMPS_TESTS_SYSTEM_OWN_SERVICE_H

#include "tests/lib/service.h"

extern struct service service;

void own_service_start(const char *configuration);
/** Gives the user so many percent of the multiprocessors from now on. */
void own_service_give(int percent);
/** A fixture. The service must end well, if the test has started one. The next test has the usual
 * memory (FRMPS_HOST_MEMORY). */
void own_service_stop(void);

#endif
