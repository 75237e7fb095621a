// Choosing a backend. Tests and the demo bring one along that needs no GPU (tests/host/).

#include <dlfcn.h>
#include <string.h>

#include "server/backend/backend.h"

const struct backend_ops *backend_find(const char *name)
{
	void *module;

	if (!strcmp(name, backend_cuda.name))
		return &backend_cuda;
	module = *name == '/' ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
	return module ? dlsym(module, BACKEND_SYMBOL) : NULL;
}
