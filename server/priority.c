// See priority.h.

#include "server/priority.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "server/log.h"

#define NICER 10

static int base; /* of the service */

void priority_raise(void)
{
	errno = 0;
	base = getpriority(PRIO_PROCESS, 0);
	if (errno || setpriority(PRIO_PROCESS, 0, base - NICER) < 0)
		log_debug("no higher priority: %s", strerror(errno));
}

void priority_restore(bool for_good)
{
	const struct rlimit none = {0};

	setpriority(PRIO_PROCESS, 0, base);
	/* The right may come from a limit, which a user's code would have as well. */
	if (for_good)
		setrlimit(RLIMIT_NICE, &none);
}
