// See own_service.h.

#include "tests/system/own_service.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/tools/ask.h"
#include "tests/lib/suite.h"

#define RELOAD_SECONDS 60

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

/* Of sections of one user the last one holds. */
void own_service_give(int percent)
{
	const struct wire_names none = {0};
	FILE *file = fopen(service.config, "a");
	char text[400];

	ck_assert_ptr_nonnull(file);
	fprintf(file, "[user %u]\nsm_percent = %d\n", (unsigned)getuid(), percent);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_msg(!ask_with(service.socket, "reload", &none, RELOAD_SECONDS, NULL, text, sizeof(text)),
		"%s", text);
}
