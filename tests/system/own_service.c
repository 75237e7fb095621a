// See own_service.h.

#include "tests/system/own_service.h"

#include <stdlib.h>

#include "tests/lib/suite.h"

struct service service;

void own_service_start(const char *configuration)
{
	ck_assert(service_start_configured(&service, configuration));
}

void own_service_stop(void)
{
	unsetenv("FRMPS_HOST_MEMORY");
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}
