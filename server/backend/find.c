// Choosing a backend. Pure.

#include <string.h>

#include "server/backend/backend.h"

const struct backend_ops *backend_find(const char *name)
{
	if (!strcmp(name, backend_cuda.name))
		return &backend_cuda;
	if (!strcmp(name, backend_host.name))
		return &backend_host;
	return NULL;
}
