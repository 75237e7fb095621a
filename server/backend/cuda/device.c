// Properties of a device, and the requirements for serving the device. Stateless; any thread, after
// cuInit.

#include <string.h>

#include "server/backend/cuda/cuda.h"

_Static_assert(CU_DEVICE_ATTRIBUTE_MAX <= BACKEND_DEVICE_ATTRS, "attribute table");
_Static_assert(CU_LIMIT_MAX <= BACKEND_DEVICE_LIMITS, "limit table");

static int attribute(CUdevice device, int id)
{
	int value = 0;

	return driver.device_attribute(&value, (CUdevice_attribute)id, device) ? 0 : value;
}

enum unfit cuda_device_unfit(CUdevice device)
{
	static const struct {
		CUdevice_attribute id;
		enum unfit without;
	} needed[] = {
		{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, UNFIT_ADDRESSING},
		{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, UNFIT_VIRTUAL},
		{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, UNFIT_DESCRIPTORS},
		{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, UNFIT_STREAM_OPS},
		{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, UNFIT_REGISTRATION},
	};
	int mode;

	if (driver.device_attribute(&mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device))
		return UNFIT_SILENT;
	if (mode == CU_COMPUTEMODE_PROHIBITED)
		return UNFIT_PROHIBITED;
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (!attribute(device, needed[i].id))
			return needed[i].without;
	return UNFIT_NOT;
}

bool cuda_device_is_exclusive(CUdevice device)
{
	return attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) != CU_COMPUTEMODE_DEFAULT;
}

static void read_tables(CUdevice device, struct backend_device *out)
{
	/* Beyond CU_DEVICE_ATTRIBUTE_MAX too: a newer driver may know more than we do. */
	for (int i = 1; i < (int)BACKEND_DEVICE_ATTRS; i++)
		out->attributes[i] = attribute(device, i);
	for (int i = 0; i < (int)BACKEND_DEVICE_LIMITS; i++) {
		size_t value = 0;

		out->limits[i] = i < CU_LIMIT_MAX && !driver.context_limit(&value, (CUlimit)i)
					 ? value
					 : BACKEND_NO_LIMIT;
	}
}

CUresult cuda_limit_set(CUlimit limit, uint64_t value, uint64_t *ret_value)
{
	size_t there = 0;
	CUresult code = driver.context_set_limit(limit, value);

	if (!code)
		code = driver.context_limit(&there, limit);
	*ret_value = there;
	return code;
}

CUresult cuda_device_read(CUdevice device, struct backend_device *ret_device)
{
	struct backend_device out = {0};
	size_t total = 0;
	CUuuid uuid;
	CUresult code;
	int least = 0, greatest = 0;

	code = driver.device_name(out.name, sizeof(out.name), device);
	if (!code)
		code = driver.device_uuid(&uuid, device);
	if (!code)
		code = driver.device_total(&total, device);
	if (!code)
		code = driver.context_priorities(&least, &greatest);
	if (code)
		return code;
	memcpy(out.uuid, uuid.bytes, sizeof(out.uuid));
	out.total_bytes = total;
	out.priority_least = least;
	out.priority_greatest = greatest;
	out.driver_version = driver.version;
	read_tables(device, &out);
	*ret_device = out;
	return CUDA_SUCCESS;
}
