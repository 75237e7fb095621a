// See fake_state.h. Every driver call that has no definition in the test program gets a weak one
// here that fails.

#include "tests/unit/client/fake_state.h"

#include "client/state/cls.h"
#include "client/state/context.h"
#include "client/state/device.h"

#include <string.h>

CUcontext fake_current;
int fake_devices;

static struct cls_map primary_map = CLS_MAP_INIT, other_map = CLS_MAP_INIT;

CUcontext context_current(void)
{
	return fake_current;
}

CUcontext context_green(CUcontext context)
{
	return context == FAKE_GREEN ? context : NULL;
}

CUcontext context_owner(CUcontext context)
{
	return context == FAKE_GREEN ? FAKE_PRIMARY : context;
}

CUcontext context_primary(int device_ordinal)
{
	return device_ordinal == 0 && fake_devices ? FAKE_PRIMARY : NULL;
}

bool context_is_live(CUcontext context)
{
	return context == FAKE_PRIMARY || context == FAKE_OTHER;
}

uint64_t context_id(CUcontext context)
{
	return context == FAKE_PRIMARY ? 11 : context == FAKE_OTHER ? 12 : 0;
}

struct cls_map *context_cls(CUcontext context)
{
	return context == FAKE_PRIMARY ? &primary_map : context == FAKE_OTHER ? &other_map : NULL;
}

uint64_t stream_unique_id(CUcontext context, CUstream stream)
{
	return context_is_live(context) && (uintptr_t)stream < 100 ? 500 + (uintptr_t)stream : 0;
}

int device_count(void)
{
	return fake_devices;
}

bool device_identity(
	int ordinal, uint8_t ret_uuid[16], int32_t *ret_domain, int32_t *ret_bus, int32_t *ret_device)
{
	if (ordinal < 0 || ordinal >= fake_devices)
		return false;
	memset(ret_uuid, 0x11 + ordinal, 16);
	*ret_domain = 0;
	*ret_bus = 0x1b + ordinal;
	*ret_device = 0;
	return true;
}

/* Declared by hand: client/entry/api.h would make them protected, and the weak ones below have no
 * prototypes.
 */
CUresult cuModuleGetFunctionCount(unsigned int *ret_count, CUmodule module);
CUresult cuModuleEnumerateFunctions(CUfunction *ret_functions, unsigned int count, CUmodule module);

CUresult cuModuleGetFunctionCount(unsigned int *ret_count, CUmodule module)
{
	if (module != FAKE_MODULE)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_count = FAKE_MODULE_FUNCTIONS;
	return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *ret_functions, unsigned int count, CUmodule module)
{
	if (module != FAKE_MODULE)
		return CUDA_ERROR_INVALID_HANDLE;
	for (uintptr_t i = 0; i < count; i++)
		ret_functions[i] = (CUfunction)(0x5000 + i);
	return CUDA_SUCCESS;
}
